"""Conversations in the form of OpenAI's chat completions: what is taken, and what is written.

The policy answers greedily and once. A field that would ask for something else is refused unless
it has the value that changes nothing; one that changes nothing of a greedy answer is ignored.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Field

from groupwise.core import Message, Picture, make_example, read_picture
from groupwise.serving.predictor import ChatAnswer, ChatQuestion

_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "n": (1,),
    "stream": (False,),
    "temperature": (0,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "stop": ([],),
    "tools": ([],),
    "functions": ([],),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
}
"""Fields with the values that change nothing; null is one for each."""
_IGNORED = {
    *("user", "seed", "top_p", "metadata", "store", "service_tier", "stream_options"),
    *("parallel_tool_calls", "tool_choice", "function_call", "safety_identifier"),
    "prompt_cache_key",
}


class TextPart(BaseModel):
    """Words."""

    type: Literal["text"]
    text: str


class PictureAddress(BaseModel):
    """Where a picture is: in the request itself."""

    url: str = Field(description="A data URL with base64; other addresses are not opened.")


class PicturePart(BaseModel):
    """A picture."""

    type: Literal["image_url"]
    image_url: PictureAddress


class ChatMessage(BaseModel):
    """A turn; only a user shows pictures."""

    role: Literal["system", "user", "assistant"]
    content: str | list[Annotated[TextPart | PicturePart, Field(discriminator="type")]]


class ChatBody(BaseModel):
    """A conversation to be continued; further fields only with values that change nothing."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(description="As /v1/models names it.")
    messages: list[ChatMessage] = Field(min_length=1, description="It ends with a user's turn.")
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)

    def list_pictures(self) -> list[str]:
        """Return the data URLs of all pictures, in order.

        Raises:
            HTTPException: 400 for another address.
        """
        found = [one.image_url.url for one in self._list_parts() if isinstance(one, PicturePart)]
        if any(not url.startswith("data:") for url in found):
            raise HTTPException(400, "a picture is given as a data URL; no address is opened")
        return found

    def join_texts(self) -> str:
        """Return all words, in order."""
        parts = (one.text if isinstance(one, TextPart) else one for one in self._list_parts())
        return "".join(one for one in parts if isinstance(one, str))

    def _list_parts(self) -> Iterator[str | TextPart | PicturePart]:
        for turn in self.messages:
            yield from [turn.content] if isinstance(turn.content, str) else turn.content

    def check(self, *names: str) -> None:
        """Refuse another model and what would change the answer.

        Raises:
            HTTPException: 404 and 400.
        """
        if self.model not in names:
            raise HTTPException(404, f"there is no model {self.model[:80]!r}; there is {names[0]}")
        for name, value in (self.model_extra or {}).items():
            if value is None or name in _IGNORED or value in _NEUTRAL.get(name, ()):
                continue
            raise HTTPException(400, f"{name[:80]} is not taken: the answer is one, whole, greedy")

    def make_question(self, files: Sequence[Path]) -> ChatQuestion:
        """Return what is asked, with the stored pictures in order.

        Raises:
            DataError: if the conversation does not end with a user's turn, or another than a user
                shows a picture.
        """
        left = iter(files)
        turns = [Message(turn.role, _list_parts(turn, left)) for turn in self.messages]
        limits = [n for n in (self.max_tokens, self.max_completion_tokens) if n is not None]
        return ChatQuestion(make_example(turns, cluster=""), min(limits, default=None))


def _list_parts(turn: ChatMessage, files: Any) -> list[str | Picture]:
    if isinstance(turn.content, str):
        return [turn.content]
    return [
        part.text if isinstance(part, TextPart) else read_picture(next(files))
        for part in turn.content
    ]


class ChatTurn(BaseModel):
    """What the policy says."""

    role: Literal["assistant"] = "assistant"
    content: str


class Choice(BaseModel):
    """The one answer."""

    index: Literal[0] = 0
    message: ChatTurn
    finish_reason: Literal["stop", "length"]


class Usage(BaseModel):
    """Tokens; those of pictures are among the prompt's."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatReply(BaseModel):
    """The answer to a conversation."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(description="Seconds since 1970.")
    model: str
    system_fingerprint: str = Field(description="Version of the model, as predict writes it.")
    choices: list[Choice]
    usage: Usage


class ServedModel(BaseModel):
    """A model that may be named."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["groupwise"] = "groupwise"


class ServedModels(BaseModel):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[ServedModel]


class ApiError(BaseModel):
    """What went wrong, in OpenAI's form."""

    message: str
    type: str
    param: None = None
    code: str | None = None


class ApiRefusal(BaseModel):
    """Why there is no answer."""

    error: ApiError


def write_chat_reply(answer: ChatAnswer, *, name: str, version: str, at_s: int) -> ChatReply:
    """Return an answer in OpenAI's form.

    Args:
        answer: of the policy.
        name: of the reply.
        version: of the model.
        at_s: seconds since 1970.
    """
    spent = (answer.num_prompt_tokens, answer.num_answer_tokens)
    choice = Choice(
        message=ChatTurn(content=answer.text), finish_reason="length" if answer.is_cut else "stop"
    )
    return ChatReply(
        id=f"chatcmpl-{name}",
        created=at_s,
        model=MODEL,
        system_fingerprint=version,
        choices=[choice],
        usage=Usage(
            prompt_tokens=spent[0], completion_tokens=spent[1], total_tokens=spent[0] + spent[1]
        ),
    )


MODEL = "policy"
"""The name of the one model that is served; its version is another."""
