"""What several analyses share: exact inversion, test inversion, corrected intervals."""
