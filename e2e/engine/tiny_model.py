"""Make a tiny Qwen3 checkpoint that thinks, answers and knows next to nothing. No network, about a minute on one core.

Run by `engine.models` under the engine's own Python, which has torch and transformers. The result is an ordinary
Hugging Face directory: `config.json`, `generation_config.json`, tokenizer with chat template, `model.safetensors`.

The geometry is fixed by what the tests count on: 4 layers x 2 KV heads x head size 32, so that a token takes
2 x 4 x 2 x 32 x 2 bytes = 1,024 bytes of KV cache in bfloat16.

`--steps 0` leaves the weights random: such a model never closes its thinking by itself (the chance is about 1 in 2,000
a token), which is what tests of long runs want. Otherwise it is trained on the dialogues until it repeats them word for
word. Some are cut in the middle of the thinking, so that an answer follows when the engine closes the thinking because
its budget is spent.
"""

# mypy: disable-error-code="import-not-found, no-any-return, untyped-decorator"
from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

# Before torch is imported: one thread and no choice of algorithm, for the same weights on every run.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 2000
CONTEXT = 8192
THINK, END_THINK, TURN_END = "<think>", "</think>", "<|im_end|>"

# As Qwen3's own: thinking is opened for the model, `enable_thinking=false` closes it at once, and the thinking of
# earlier turns is left out.
CHAT_TEMPLATE = r"""
{%- for message in messages -%}
{%- set text = message.content -%}
{%- if message.role == 'assistant' -%}{%- set text = text.split('</think>')[-1].lstrip('\n') -%}{%- endif -%}
{{- '<|im_start|>' + message.role + '\n' + text + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n<think>\n' -}}
{%- if enable_thinking is defined and enable_thinking is false -%}{{- '\n</think>\n\n' -}}{%- endif -%}
{%- endif -%}""".lstrip()

SYSTEM_PROMPTS = ["", "", "You are a helpful assistant.", "Answer in one sentence."]


def make_tokenizer(dialogues: list[dict[str, Any]]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of 2,000 tokens, learned from the dialogues and from the text of the standard library."""
    library = Path(os.__file__).parent
    texts = [path.read_text(errors="replace") for path in sorted(library.glob("*.py"))[:20]]
    spoken = [text for item in dialogues for text in (*item["questions"], item["thinking"], item["answer"])]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [*texts, *spoken * 20],
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=["<|endoftext|>", "<|im_start|>", TURN_END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    visible = [THINK, END_THINK, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in visible])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
    )


def make_config(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    config = Qwen3Config(
        vocab_size=math.ceil(len(tokenizer) / 64) * 64,
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        max_window_layers=4,
        rope_theta=1e6,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    config.architectures = ["Qwen3ForCausalLM"]
    config.dtype = "bfloat16"
    return config


class Examples:
    """Endless training examples: (token ids, which of them the model has to learn)."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, dialogues: list[dict[str, Any]], seed: int) -> None:
        self._tokenizer = tokenizer
        self._dialogues = dialogues
        self._random = random.Random(seed)
        self._end_think = tokenizer.convert_tokens_to_ids(END_THINK)
        self._turn_end = tokenizer.eos_token_id

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def prompt(self, messages: list[dict[str, str]], **template: Any) -> list[int]:
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **template)
        return self._ids(text)

    def draw(self) -> tuple[list[int], list[bool]]:
        pick = self._random
        item = pick.choice(self._dialogues)
        messages = [{"role": "system", "content": system}] if (system := pick.choice(SYSTEM_PROMPTS)) else []
        if pick.random() < 0.15:
            earlier = pick.choice(self._dialogues)
            messages.append({"role": "user", "content": pick.choice(earlier["questions"])})
            messages.append({"role": "assistant", "content": earlier["answer"]})
        messages.append({"role": "user", "content": pick.choice(item["questions"])})
        answer = [*self._ids("\n\n" + item["answer"]), self._turn_end]
        kind = pick.random()
        if kind < 0.25:  # no thinking: the template has closed it
            ids = self.prompt(messages, enable_thinking=False)
            reply = [*self._ids(item["answer"]), self._turn_end]
            return ids + reply, [False] * len(ids) + [True] * len(reply)
        ids, thinking = self.prompt(messages), self._ids(item["thinking"] + "\n")
        if kind < 0.55:  # cut: the end of the thinking is the engine's doing, so it is not learned here
            thinking = thinking[: pick.randrange(len(thinking))]
            reply = [*thinking, self._end_think, *answer]
            learn = [True] * len(thinking) + [False] + [True] * len(answer)
        else:
            reply = [*thinking, self._end_think, *answer]
            learn = [True] * len(reply)
        return ids + reply, [False] * len(ids) + learn

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        drawn = [self.draw() for _ in range(size)]
        width = max(len(ids) for ids, _ in drawn)
        inputs = torch.full((size, width), self._tokenizer.pad_token_id)
        labels = torch.full((size, width), -100)
        for row, (ids, learn) in enumerate(drawn):
            inputs[row, : len(ids)] = torch.tensor(ids)
            labels[row, : len(ids)] = torch.tensor(
                [token if on else -100 for token, on in zip(ids, learn, strict=True)]
            )
        return inputs, labels


def train(model: Qwen3ForCausalLM, examples: Examples, *, steps: int, batch: int, rate: float) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    warm_up = 20
    started = time.monotonic()
    for step in range(1, steps + 1):
        progress = step / steps
        scale = min(step / warm_up, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = rate * scale
        inputs, labels = examples.batch(batch)
        # No padding mask: padding is at the end, and attention looks back only.
        hidden = model.model(input_ids=inputs).last_hidden_state[:, :-1]
        learned = labels[:, 1:] != -100
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[learned]), labels[:, 1:][learned])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == steps:
            seconds = time.monotonic() - started
            print(f"  step {step} of {steps}: loss {loss.item():.3f}, {seconds:.0f} s", flush=True)


@torch.no_grad()
def wrong_answers(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, examples: Examples) -> list[str]:
    """The first question of each dialogue whose thinking and answer do not come back word for word."""
    wrong = []
    for item in examples._dialogues:
        question = item["questions"][0]
        ids = torch.tensor([examples.prompt([{"role": "user", "content": question}])])
        output = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=160)
        text = tokenizer.decode(output[0, ids.shape[1] :])
        if text != f"{item['thinking']}\n{END_THINK}\n\n{item['answer']}{TURN_END}":
            wrong.append(f"{question} -> {text}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dialogues", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(mode=True)
    dialogues = json.loads(options.dialogues.read_text())
    tokenizer = make_tokenizer(dialogues)
    config = make_config(tokenizer)
    model = Qwen3ForCausalLM(config).float()
    examples = Examples(tokenizer, dialogues, options.seed)
    if options.steps:
        train(model, examples, steps=options.steps, batch=options.batch, rate=options.rate)
    model = model.to(torch.bfloat16).eval()
    if options.steps and (wrong := wrong_answers(model, tokenizer, examples)):
        print(f"  {len(wrong)} of {len(dialogues)} dialogues are not learned:", *wrong[:5], sep="\n    ", flush=True)
        if len(wrong) > len(dialogues) // 8:
            return 1
    tokenizer.save_pretrained(options.out)
    model.save_pretrained(options.out)
    GenerationConfig(
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
        temperature=0.6,
        top_p=0.95,
    ).save_pretrained(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
