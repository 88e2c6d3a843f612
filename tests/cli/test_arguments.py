"""Names of outputs that promise another kind of file are refused."""

from dpstats.cli import REFUSED


def test_outputs_have_the_ending_of_what_is_written(folder, printed):
    for command, given, better in (
        ("report z.zip", "z.pdf", "z.html"), ("init survey.csv", "n.json", "n.toml"),
        ("plan request.toml", "p.toml", "p.json"), ("synthesize z.zip", "z.csv", "z.zip"),
        ("release request.toml survey.csv", "z.csv", "z.zip"),
    ):  # fmt: skip
        refused = printed(f"{command} -o {given}", code=REFUSED)
        assert f"name it {better}, not {given}" in refused
        assert not (folder / given).exists()
