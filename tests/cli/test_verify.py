"""The command verify, which runs the second opinion."""

import json

from dpstats.cli import FAILED, REFUSED


def test_a_plan_that_was_edited(folder, printed, streams):
    printed("plan request.toml -o plan.json")
    plan = json.loads((folder / "plan.json").read_text())
    plan["budget"]["epsilon"] = "99/100"
    (folder / "plan.json").write_text(json.dumps(plan))
    out, _ = streams("verify plan.json", code=FAILED)
    assert "Disagreement: the noise spends 1 on rows" in out


def test_other_files_are_refused(folder, streams):
    (folder / "notes.txt").write_text("secret")
    (folder / "other.json").write_text("{}")
    for name, says in {
        "request.toml": "request.toml is a request, not a release, measurements or a plan; make",
        "notes.txt": "notes.txt is not a file of dpstats: neither a release",
        "other.json": "other.json is not a plan of dpstats",
        "none": "cannot read none: No such file",
    }.items():
        out, err = streams(f"verify {name}", code=REFUSED)
        assert not out
        assert err.startswith(f"dpstats: {says}")
        assert "secret" not in err
