"""The pages in headless Chromium, where it is found: nothing overflows, in light and in dark.

With axe-core (`npm install --no-save axe-core` in the root of the repository, or the path of its
axe.min.js as DPSTATS_AXE) its rules run too.
"""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMIUM = CHROMIUM or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

_INSTALLED = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
AXE = Path(os.environ.get("DPSTATS_AXE", _INSTALLED))

# Every page in a frame of each width: is a part wider than the frame, is text too faint?
PROBE = """
<script>
const luminance = c => {
  const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const contrast = (a, b) => {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + .05) / (y + .05);
};
addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, paper = frame.contentWindow.getComputedStyle(page.body);
    const faint = [...page.querySelectorAll("h1, h2, h3, h4, p, a, li, dt, dd, th, td, figcaption")]
      .map(e => contrast(frame.contentWindow.getComputedStyle(e).color, paper.backgroundColor));
    const drawn = [...page.querySelectorAll("svg")].map(e => e.getBoundingClientRect().width);
    return {
      width: frame.clientWidth, needed: page.documentElement.scrollWidth,
      faintest: Math.min(...faint), paper: paper.backgroundColor, figures: drawn.length,
      narrowest: Math.min(...drawn), widest: Math.max(...drawn),
    };
  });
  document.body.textContent = "FOUND" + JSON.stringify(found) + "END";
});
</script>
"""


# What axe-core objects to, and how many of its rules the page passes.
RULES = """
<script>
addEventListener("load", () => axe.run(document).then(found => {
  const broken = found.violations.map(rule => [rule.id, rule.nodes.map(node => node.html)]);
  document.body.textContent = "FOUND" + JSON.stringify([broken, found.passes.length]) + "END";
}));
</script>
"""


def probed(path, scheme):
    """What the script of a page writes in its place."""
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom",
         "--allow-file-access-from-files", f"--user-data-dir={path.parent / 'profile'}",
         "--window-size=1400,1000", "--virtual-time-budget=60000",
         f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", path.as_uri()],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return json.loads(re.findall(r"FOUND(.*?)END", html.unescape(done.stdout))[-1])


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core on this machine")
@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("audience", ["analysts", "board"])
def test_axe_core_finds_no_error(pages, audience, scheme, tmp_path):
    page = pages[audience].read_text("utf-8")
    page = re.sub(r"<meta http-equiv=[^>]*>", "", page)  # the page itself lets no script run
    script = AXE.read_text("utf-8").replace("</script", r"<\/script")
    page = page.replace("</body>", f"<script>{script}</script>{RULES}</body>")
    (tmp_path / "page.html").write_text(page, "utf-8")
    broken, passed = probed(tmp_path / "page.html", scheme)
    assert broken == []
    assert passed > 30


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_every_width_has_room_and_text_stands_out(pages, scheme, tmp_path):
    frames = "".join(
        f'<iframe src="{path.as_uri()}" style="width:{width}px;height:500px;border:0"></iframe>'
        for path in pages.values()
        for width in (360, 1200)
    )
    (tmp_path / "frames.html").write_text(f"<!DOCTYPE html><body>{frames}{PROBE}</body>")
    found = probed(tmp_path / "frames.html", scheme)
    assert [one["width"] for one in found] == [360, 1200, 360, 1200]
    for one in found:
        assert one["needed"] <= one["width"]
        assert one["faintest"] >= 4.5
        assert (one["paper"] == "rgb(255, 255, 255)") == (scheme == "light")
    assert found[0]["figures"] == found[1]["figures"] > 5
    assert 280 < found[0]["narrowest"] <= found[0]["widest"] <= 360
