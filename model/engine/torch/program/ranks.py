"""The processes among which a model is spread, one for each device.

Rank r of n holds the r-th part of the rows (the first dimension) of each tensor: FSDP2 (torch.distributed.fsdp) puts a
layer's tensors together just before they are used. Adapters and value heads are small: each rank holds them whole.
Each rank gets rows of its own. A gradient is the sum of all ranks', in F32; the objective has divided by what it counts.
"""

import contextlib
import datetime
import os

import torch


class Alone:
    """The only process: it holds everything."""

    rank, count = 0, 1

    def module(self, device):
        """A context in which modules are made."""
        return torch.device(device)

    def spread(self, module, layers, device, dtype, offload):
        """Has each rank keep its rows of the parameters alone, which have no numbers yet; in the CPU's memory if offload
        is true, and then without ever changing them."""

    def reshard(self, module):
        """Gives up what the last forward pass has put together."""

    def rows(self, tensor, parameter):
        """This rank's part of a tensor that is laid out as a parameter is."""
        return tensor

    def own(self, parameter):
        """What this rank holds of a parameter or of its gradient: the same memory."""
        return parameter.detach()

    def holds(self, parameter):
        """Whether it is this rank that writes what it holds of a parameter."""
        return True

    def sum(self, parameters):
        """Adds up the gradients of parameters that each rank holds whole."""

    def length(self, parameters):
        """The norm of the gradients of all parameters."""
        squares = [p.grad.double().square().sum() for p in parameters]
        return torch.stack(squares).sum().sqrt().item() if squares else 0.0


class Ranks(Alone):
    """Process number rank of count, which find each other by a file of directory. None has any timeout of its own: the
    engine notices if all of them wait."""

    def __init__(self, rank, count, device, directory):
        import torch.distributed as dist
        from torch.distributed.device_mesh import DeviceMesh

        self.rank, self.count, self.dist = rank, count, dist
        cuda = device.type == "cuda"
        if cuda:
            torch.cuda.set_device(device)
        store = dist.FileStore(os.path.join(directory, "ranks"), count)
        dist.init_process_group(
            "nccl" if cuda else "gloo", store=store, rank=rank, world_size=count, timeout=datetime.timedelta(days=1),
            device_id=device if cuda else None,
        )
        self.mesh = DeviceMesh(device.type, list(range(count)))

    @contextlib.contextmanager
    def module(self, device):
        """No rank has room for all numbers. Parameters get shapes alone; buffers are computed of the config."""
        register = torch.nn.Module.register_parameter

        def shape(module, name, parameter):
            if parameter is not None:
                parameter = torch.nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
            register(module, name, parameter)

        torch.nn.Module.register_parameter = shape
        try:
            yield
        finally:
            torch.nn.Module.register_parameter = register

    def spread(self, module, layers, device, dtype, offload):
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        place = CPUOffloadPolicy(pin_memory=device.type == "cuda") if offload else OffloadPolicy()
        for part in [*layers, module]:
            fully_shard(part, mesh=self.mesh, mp_policy=policy, offload_policy=place)
            part.set_gradient_divide_factor(1.0)  # FSDP's own is a mean
            part.set_force_sum_reduction_for_comms(True)
        computed = {name: b.clone() for name, b in module.named_buffers()}
        module.to_empty(device="cpu" if offload else device)
        for name, b in list(module.named_buffers()):
            b.copy_(computed[name])
            b.data = b.data.to(device)

    def reshard(self, module):
        module.reshard()

    def rows(self, tensor, parameter):
        if not self.cut(parameter):
            return tensor
        parts = torch.chunk(tensor, self.count)  # as FSDP2 cuts
        return parts[self.rank] if self.rank < len(parts) else tensor[:0]

    def own(self, parameter):
        return parameter.detach().to_local() if self.cut(parameter) else parameter.detach()

    def cut(self, parameter):
        """Whether ranks hold rows of a parameter, not all of it."""
        return hasattr(parameter, "to_local")

    def holds(self, parameter):
        return self.own(parameter).numel() > 0 if self.cut(parameter) else self.rank == 0

    def sum(self, parameters):
        whole = [p.grad for p in parameters if not self.cut(p)]
        if whole:
            flat = torch.cat([g.flatten() for g in whole])
            self.dist.all_reduce(flat)
            for g, part in zip(whole, flat.split([g.numel() for g in whole])):
                g.copy_(part.view_as(g))

    def length(self, parameters):
        """Rank 0 alone counts what all ranks hold."""
        squares = [self.own(p.grad).double().square().sum() for p in parameters if self.rank == 0 or self.cut(p)]
        total = torch.stack(squares).sum() if squares else torch.zeros((), dtype=torch.float64, device=parameters[0].device)
        self.dist.all_reduce(total)
        return total.sqrt().item()
