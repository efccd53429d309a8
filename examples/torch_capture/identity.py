"""Numbers of tensors and storages that hold for a whole step.

PyTorch's observer names tensors by their addresses, which are used again after a tensor dies, and storages by the
addresses of their data, which all storages on device ``meta`` lack.
"""

import itertools


def storage_of(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()._storage  # 2.0, 1.13


class Identities:
    """Numbers tensors and storages. It keeps each storage alive, so that no address is met twice.

    Attributes:
        strides: of tensors by their number.
    """

    def __init__(self):
        self.fresh = itertools.count(1).__next__
        self._storages, self._first = {}, {}
        self.strides = {}

    def storage(self, tensor):
        storage = storage_of(tensor)
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = (storage, self.fresh())
        return self._storages[storage._cdata][1]

    def entry(self, tensor, is_result=False):
        """Describes a tensor as execution graphs do: number, storage, offset, elements, bytes of one, device. A
        sparse tensor has only a number, as in PyTorch's graphs."""
        if tensor.is_sparse:
            return [self._number(tensor, (self.storage(tensor._values()), "sparse"), is_result), 0, 0, 0, 0, ""]
        storage, offset = self.storage(tensor), tensor.storage_offset()
        number = self._number(tensor, (storage, offset, tuple(tensor.shape), tensor.stride(), tensor.dtype), is_result)
        self.strides[number] = tensor.stride()
        return [number, storage, offset, tensor.numel(), tensor.element_size(), str(tensor.device)]

    def share(self, tensor, other):
        """`tensor` stands for `other`, which has a number."""
        tensor._number = (other._number[0], id(tensor))

    def _number(self, tensor, place, is_result):
        """A tensor's own number. A tensor that autograd kept comes back without a maker: it has the number of the
        first in that place. An attribute is copied with a tensor, so it says whose it is."""
        number, owner = getattr(tensor, "_number", (None, None))
        if owner != id(tensor):
            number = self.fresh() if is_result else self._first.get(place) or self.fresh()
            self._first.setdefault(place, number)
            tensor._number = (number, id(tensor))
        return number
