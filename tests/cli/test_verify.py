"""The command verify, which runs the second opinion."""

import json

from dpstats.cli import DONE, FAILED, REFUSED, main


def test_a_plan_that_was_edited(folder, capsys):
    assert main(["plan", "request.toml", "-o", "plan.json"]) == DONE
    plan = json.loads((folder / "plan.json").read_text())
    plan["budget"]["epsilon"] = "99/100"
    (folder / "plan.json").write_text(json.dumps(plan))
    capsys.readouterr()
    assert main(["verify", "plan.json"]) == FAILED
    assert "Disagreement: the noise spends 1 on rows" in capsys.readouterr().out


def test_other_files_are_refused(folder, capsys):
    for name, says in [
        ("request.toml", "request.toml is a request, not a release, measurements or a plan; make"),
        ("notes.txt", "notes.txt is not a file of dpstats: neither a release"),
        ("other.json", "other.json is not a plan of dpstats"),
        ("none", "cannot read none: No such file"),
    ]:
        (folder / "notes.txt").write_text("secret")
        (folder / "other.json").write_text("{}")
        assert main(["verify", name]) == REFUSED
        out, err = capsys.readouterr()
        assert not out
        assert err.startswith(f"dpstats: {says}")
        assert "secret" not in err
