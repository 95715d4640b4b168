"""The Hugging Face Trainer:

torchrun --standalone --nproc-per-node=2 examples/frameworks/transformers_ddp.py
"""

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import elastiquant


class Compress(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.compression = elastiquant.compress(
            trainer.model_wrapped, "dither:bits=1", optimizer=trainer.optimizer
        )

    def on_train_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            print(self.compression.metric, self.compression.summary())


text = torch.randint(0, 50, (256, 32))
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=2)
)
arguments = TrainingArguments(
    "runs/trainer",
    use_cpu=True,
    max_steps=20,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
data = [{"input_ids": row, "labels": row} for row in text]
trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Compress()])
trainer.train()
