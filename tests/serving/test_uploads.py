import pytest
from damaged_pictures import damage_picture


def ask(client, pictures):
    files = [("pictures", (f"{i}.jpg", content)) for i, content in enumerate(pictures)]
    return client.post("/v1/predict", files=files, data={"row": '{"task": "doors"}'})


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_pictures_are_refused_in_a_sentence(start):
    """17127: of its EXIF data Pillow raises a struct.error."""
    client = start()
    for seed in (*range(40), 17127):
        answer = ask(client, [damage_picture(seed)])
        assert answer.status_code in (200, 422), (seed, answer.text)
        if answer.status_code == 422:
            assert answer.json()["detail"].startswith("picture 1 is no whole picture")
