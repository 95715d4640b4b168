"""The Hugging Face Trainer: torchrun --standalone --nproc-per-node=2 transformers_ddp.py"""

import torch
import transformers

import elastiquant


class Compress(transformers.TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.compression = elastiquant.compress(
            trainer.model_wrapped, "dither:bits=1", optimizer=trainer.optimizer
        )

    def on_train_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            print(self.compression.metric, self.compression.summary())


config = transformers.GPT2Config(vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=2)
model = transformers.GPT2LMHeadModel(config)
text = torch.randint(0, 50, (256, 32))
data = [{"input_ids": row, "labels": row} for row in text]
quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True}
arguments = transformers.TrainingArguments("runs/trainer", use_cpu=True, max_steps=20, **quiet)
trainer = transformers.Trainer(model, arguments, train_dataset=data, callbacks=[Compress()])
trainer.train()
