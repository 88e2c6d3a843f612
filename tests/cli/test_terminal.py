"""What the command line prints fits the terminal: sentences and names wrap, data never."""

from dpstats.terminal import fitted


def test_sentences_wrap_and_hang_below_what_they_describe():
    schema = "age     number, 0 to 120, 121 points; missing: counted as 40"
    assert fitted(schema, 40).splitlines() == [
        "age     number, 0 to 120, 121 points;", "        missing: counted as 40",
    ]  # fmt: skip
    command = "dpstats synthesize a.measurements.zip -o another.zip --overwrite"
    assert command in fitted(f"dpstats: finish the release with: {command}", 40)
