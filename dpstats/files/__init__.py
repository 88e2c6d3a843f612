"""Files of dpstats: zip archives of JSON and CSV, versioned, written atomically, nothing else."""

from dpstats.files.archives import MEASUREMENTS, RELEASE, load_archive, pack, unpack
from dpstats.files.places import (
    as_path,
    check_kind,
    check_place,
    holds_measurements,
    kind_of,
    kind_of_file,
    mistaken,
    read_bytes,
    reserved,
    shown,
    write_atomically,
    written_in_parts,
)
from dpstats.files.texts import (
    VERSION,
    as_document,
    csv_line,
    difference,
    digest,
    digest_of_bytes,
    formula_note,
    from_csv,
    from_json,
    named_in_errors,
    parse_json,
    reading,
    short_digest,
    to_csv,
    to_json,
)

__all__ = [
    "MEASUREMENTS", "RELEASE", "VERSION", "as_document", "as_path", "check_kind", "check_place",
    "csv_line", "difference", "digest", "digest_of_bytes", "formula_note", "from_csv",
    "from_json", "holds_measurements", "kind_of", "kind_of_file", "load_archive", "mistaken",
    "named_in_errors",
    "pack", "parse_json", "read_bytes", "reading", "reserved", "short_digest",
    "shown", "to_csv", "to_json", "unpack", "write_atomically", "written_in_parts",
]  # fmt: skip
