"""Adapters on a vLLM server, each under a name made of its digest.

After an update the adapter alone is sent: of a linear layer rank · (inputs + outputs) numbers, not
inputs · outputs, through a folder that both can read, so neither NCCL nor vLLM is needed here. A
name is never used again for other weights: what vLLM keeps of prompts is kept by the name of the
adapter. The server has to say the name in every answer.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

from groupwise.core import TrainingError, digest_file, digest_json
from groupwise.training.fast.vllm_weights import find_adapter_fault

ADAPTER = "default"

_Generation: Any = VLLMGeneration
_Client: Any = VLLMClient


@contextmanager
def send_adapters(folder: Path) -> Iterator[None]:
    """Within this context trainers sample with the adapters that they put on a server.

    Args:
        folder: of the training; the server has to read it at the same place.
    """
    import trl.trainer.grpo_trainer

    module: Any = trl.trainer.grpo_trainer
    own = module.VLLMGeneration
    module.VLLMGeneration = partial(AdapterGeneration, folder=folder)
    try:
        yield
    finally:
        module.VLLMGeneration = own


class AdapterGeneration(_Generation):
    """TRL's VLLMGeneration that sends a server the adapter of its model.

    Args:
        folder: of the training.
        named: VLLMGeneration's own arguments.

    Raises:
        TrainingError: if vLLM cannot load the adapter.
    """

    def __init__(self, *, folder: Path, **named: Any) -> None:
        self._folder = folder
        super().__init__(**named)

    def _init_vllm(self) -> None:
        fault = find_adapter_fault(self.model)
        if self._dist.is_fsdp or self._dist.is_zero3:
            fault = "its weights are spread over processes"
        if fault is not None:
            raise TrainingError(
                f"vLLM cannot load the adapter of this policy: {fault}",
                fix="set grpo.vllm.sends to weights, or train plain LoRA on linear layers",
            )
        if self.accelerator.is_main_process:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._place = TemporaryDirectory(prefix="adapters-", dir=self._folder)
            self.vllm_client = AdapterClient(self.server_base_url, timeout_s=self.server_timeout)
        self.accelerator.wait_for_everyone()

    def sync_weights(self) -> None:
        """Save the adapter and let the server sample with it."""
        if self.accelerator.is_main_process:
            self.vllm_client.swap(save_adapter(self.model, Path(self._place.name)))
        self.accelerator.wait_for_everyone()


def save_adapter(model: Any, place: Path) -> Path:
    """Save the adapter of a PEFT model in a new folder whose name is the digest of its files."""
    folder = place / "new"
    model.save_pretrained(folder, selected_adapters=[ADAPTER], save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    named = place.resolve() / digest_json([digest_file(path) for path in files])[:32]
    rmtree(named, ignore_errors=True)
    return folder.rename(named)


class AdapterClient(_Client):
    """TRL's client of a vLLM server, for which vLLM need not be installed here.

    Args:
        base_url: of the server.
        timeout_s: how long to wait for it.

    Attributes:
        model: what the server is asked to sample with.
    """

    def __init__(self, base_url: str, *, timeout_s: float) -> None:
        import requests  # TRL's own way to ask; its constructor wants vLLM

        self.session = requests.Session()
        self.base_url = base_url.rstrip("/")
        self.check_server(timeout_s)
        self.model = self._base = self._list_models()[0]

    def swap(self, folder: Path) -> None:
        """Let the server load an adapter, and unload and remove the one before.

        Args:
            folder: of the adapter; its name is the adapter's.

        Raises:
            TrainingError: if the server refuses.
        """
        before, self.model = self.model, folder.name
        if before == self.model:
            return
        if self.model not in self._list_models():
            self._change("load", lora_name=self.model, lora_path=str(folder))
        if before != self._base:
            self._change("unload", lora_name=before)
            rmtree(folder.parent / before, ignore_errors=True)

    def reset_prefix_cache(self) -> None:
        """Do nothing: what was kept belongs to other names."""

    def _list_models(self) -> list[str]:
        return [one["id"] for one in self._get(f"{self.base_url}/v1/models")["data"]]

    def _change(self, verb: str, **asked: str) -> None:
        answer = self.session.post(f"{self.base_url}/v1/{verb}_lora_adapter", json=asked)
        if answer.status_code != HTTPStatus.OK:
            raise TrainingError(
                f"the vLLM server did not {verb} the adapter {asked['lora_name']}",
                got=f"{answer.status_code}: {_read_message(answer.text)}",
                fix="start it as grpo.vllm describes for sends: adapter, where it can read the "
                "folder of the run",
            )

    def _post(self, url: str, **named: Any) -> dict[str, Any]:
        """Ask, and see who answers.

        Raises:
            TrainingError: if it is not the adapter that was asked.
        """
        answer = super()._post(url, **named)
        asked = named.get("json", {}).get("model")
        if asked is not None and answer.get("model") != asked:
            raise TrainingError(
                "the vLLM server did not sample with the newest adapter",
                got=f"an answer by {answer.get('model') or 'a model without a name'}",
                expected=asked,
                fix="let no other process change its adapters",
            )
        return answer


def _read_message(body: str) -> str:
    """Return the message of vLLM's errors, or else the first line."""
    try:
        found = json.loads(body)
    except ValueError:
        return body.partition("\n")[0][:200]
    error = found.get("error", found) if isinstance(found, Mapping) else {}
    return str(error.get("message", body) if isinstance(error, Mapping) else body)[:200]
