"""A frozen model that leaves the device while others use it."""

import torch


class Offload:
    """Keeps the numbers of a module in the CPU's memory, pinned where they go to a GPU, and on the device while the
    module is used. Nothing is written back: they don't change."""

    def __init__(self, module, device):
        self.device, self.held, self.here = device, [], True
        for p in module.parameters():
            kept = torch.empty_like(p, device="cpu", pin_memory=device.type == "cuda", requires_grad=False)
            self.held.append((p, kept.copy_(p.detach())))
        self.put_away()

    def put_away(self):
        if self.here:
            for p, kept in self.held:
                p.data = kept
        self.here = False

    def bring(self):
        if not self.here:
            for p, kept in self.held:
                p.data = kept.to(self.device, non_blocking=True, copy=True)
        self.here = True
