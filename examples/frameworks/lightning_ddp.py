"""Lightning: python examples/frameworks/lightning_ddp.py (it starts the workers itself)"""

import lightning
import torch
from lightning.pytorch.demos.boring_classes import BoringModel

import elastiquant


class Compress(lightning.Callback):
    def on_train_start(self, trainer, module):
        ddp, optimizers = trainer.strategy.model, trainer.optimizers
        self.compression = elastiquant.compress(ddp, "dither:bits=1", optimizer=optimizers)

    def on_train_end(self, trainer, module):
        if trainer.is_global_zero:
            print(self.compression.metric, self.compression.summary())


class Model(BoringModel):  # Lightning's model for demonstrations, with its data
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


if __name__ == "__main__":
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    options = {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "max_epochs": 1}
    lightning.Trainer(callbacks=[Compress()], **options, **quiet).fit(Model())
