"""The pages in headless Chromium, where it is found: nothing overflows, in light and in dark."""

import html
import json
import re
import shutil
import subprocess

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

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


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_every_width_has_room_and_text_stands_out(pages, scheme, tmp_path):
    frames = "".join(
        f'<iframe src="{path.as_uri()}" style="width:{width}px;height:500px;border:0"></iframe>'
        for path in pages.values()
        for width in (360, 1200)
    )
    (tmp_path / "frames.html").write_text(f"<!DOCTYPE html><body>{frames}{PROBE}</body>")
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom",
         "--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}",
         "--window-size=1400,1000", "--virtual-time-budget=60000",
         f"--blink-settings=preferredColorScheme={int(scheme == 'light')}",
         (tmp_path / "frames.html").as_uri()],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = json.loads(re.findall(r"FOUND(.*?)END", html.unescape(done.stdout))[-1])
    assert [one["width"] for one in found] == [360, 1200, 360, 1200]
    for one in found:
        assert one["needed"] <= one["width"]
        assert one["faintest"] >= 4.5
        assert (one["paper"] == "rgb(255, 255, 255)") == (scheme == "light")
    assert found[0]["figures"] == found[1]["figures"] > 5
    assert 280 < found[0]["narrowest"] <= found[0]["widest"] <= 360
