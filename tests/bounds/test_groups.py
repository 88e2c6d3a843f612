def test_a_text_that_is_neither_a_column_nor_an_analysis_names_both():
    release = without_noise({"readmission": dps.Proportion("ill")}, rows_of())
    for ask in (release.explain, release.bound):
        with pytest.raises(dps.ConditionError, match=r"columns: .*planned.*\['readmission'\]"):
            ask("readmision")
        with pytest.raises(dps.ConditionError) as refused:
            ask("readmision & ill")
        assert "planned" not in str(refused.value)
    assert release.explain("readmission").verdict == "measured"


def test_what_limits_a_question_is_counted_as_sums_that_follow_from_the_answers():
    release = without_noise({"g": dps.GroupMeans("x", by="w")}, rows_of())
    found = release.bound(dps.Mean("x"))
    assert found.known_from == ["2 sums of x that follow from the answers"]
