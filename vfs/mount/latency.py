"""A request to the kernel that processors wake at once, held while a burst of requests lasts.

A client and the daemon wake each other once for every request. On a virtual machine a processor
that halted takes 15 to 60 us to wake, which is several times what the request itself takes. While
the request is held, idle processors poll instead of halting (PM QoS, Documentation/power/
pm_qos_interface in the kernel's sources): they cost power, machine-wide, so it is made only when
asked for (`--low-latency`), and held for bursts only. The kernel drops it by itself when the
process ends.
"""

from __future__ import annotations

import os
import struct

DEVICE = "/dev/cpu_dma_latency"

_NONE = struct.pack("=i", 0)
"""No latency at all, in microseconds."""
_ANY = struct.pack("=i", 2_000_000_000)
"""No wish (PM_QOS_CPU_LATENCY_DEFAULT_VALUE, include/linux/pm_qos.h)."""


class CpuLatency:
    """The request of this process; without the right to make one, calls do nothing."""

    def __init__(self, device: str = DEVICE) -> None:
        try:
            self._fd = os.open(device, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1  # containers mostly have no such device

    def hold(self) -> None:
        """Has idle processors poll."""
        if self._fd >= 0:
            os.write(self._fd, _NONE)

    def relax(self) -> None:
        """Lets idle processors halt again."""
        if self._fd >= 0:
            os.write(self._fd, _ANY)

    def close(self) -> None:
        """Withdraws the request."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
