"""Lightning: python examples/frameworks/lightning_ddp.py (it starts the workers itself)"""

import lightning
import torch
from torch import nn

import elastiquant


class Compress(lightning.Callback):
    def on_train_start(self, trainer, module):
        ddp, optimizers = trainer.strategy.model, trainer.optimizers
        self.compression = elastiquant.compress(ddp, "dither:bits=1", optimizer=optimizers)

    def on_train_end(self, trainer, module):
        if trainer.is_global_zero:
            print(self.compression.metric, self.compression.summary())


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


if __name__ == "__main__":
    inputs = torch.randn(4096, 64)
    data = torch.utils.data.TensorDataset(inputs, inputs[:, :10].argmax(1))
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    options = {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "max_epochs": 1}
    lightning.Trainer(callbacks=[Compress()], **options, **quiet).fit(Classifier(), loader)
