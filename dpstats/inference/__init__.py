"""Laws, intervals and tests that several analyses share."""
