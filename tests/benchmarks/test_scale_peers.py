import pytest
import scale_peers


def found(of_stack):
    seconds = {"UQ360": [2.5, 2.0], "1": [1.0], "25": [of_stack]}
    beside = {
        "data": "boston",
        "rows of a member": 404,
        "settings": scale_peers.speed.SETTINGS,
        "seeds": [0, 1],
        "peer versions": {"uq360": "0.2", "torch": "2"},
        "CPU seconds of each fit": seconds,
    }
    mapie = {"networks": 6, "versions": {"mapie": "1"}, "CPU seconds of each fit": [3.0, 2.4]}
    return {"beside UQ360": beside, "MAPIE": mapie}


def test_seconds_are_shared_out_to_the_members_and_epochs_are_those_of_their_networks():
    rows = scale_peers.per_network(found(5.0))
    assert rows["UQ360"] == {"members": 1, "epochs": 200, "fastest": 2.0, "median": 2.25}
    assert rows["1"]["epochs"] == 200  # as published: no epochs after the last round
    assert rows["25"] == {"members": 25, "epochs": 220, "fastest": 0.2, "median": 0.2}
    assert rows["MAPIE"] == {"members": 6, "epochs": 100, "fastest": pytest.approx(0.4), "median": pytest.approx(0.45)}


@pytest.mark.parametrize(("of_stack", "verdict"), [(5.0, "reached"), (5.1, "MISSED")])
def test_the_stack_is_judged_by_the_fastest_fits_and_medians_stand_beside(of_stack, verdict):
    text = scale_peers.lines(found(of_stack), "cpu")
    assert f"by the fastest fits: {verdict}; " in text
    assert "| MAPIE's CV+ around a network | 6 | 0.400 |" in text
