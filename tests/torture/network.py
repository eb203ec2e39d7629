"""A network of hosts for one trial. Each process has its own namespace, whose packets pass through this process.

It needs Linux, root and /dev/net/tun. A packet is `delay` seconds late, waits its turn at `rate` bytes a second, and is lost if
`passes(source, target, port)` returns False.
"""

import array
import collections
import ctypes
import fcntl
import heapq
import itertools
import os
import select
import socket
import struct
import threading
import time

from tests.torture.world import NotRun

PREFIX = "10.77.0."
# linux/if_tun.h, linux/sockios.h and sched.h
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFMTU = (
    0x8913,
    0x8914,
    0x8916,
    0x891C,
    0x8922,
)
IFF_UP = 1
CLONE_NEWNET = 0x40000000
MTU = 9000
TCP = 6
# The most packets that wait for one host. Further ones are lost, as in a real switch.
LONGEST_QUEUE = 4000


def new_namespace():
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def address_request(name, address):
    return struct.pack("16sH2s4s8s", name, socket.AF_INET, b"", socket.inet_aton(address), b"")


def bring_up(name, address=None):
    """Brings an interface of this namespace up. address: the address to give it, in a network of 254 hosts. None means that it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        if address is not None:
            fcntl.ioctl(control, SIOCSIFADDR, address_request(name, address))
            fcntl.ioctl(control, SIOCSIFNETMASK, address_request(name, "255.255.255.0"))
            fcntl.ioctl(control, SIOCSIFMTU, struct.pack("16sI12s", name, MTU, b""))
        flags = struct.unpack("16sH", fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16sH", name, 0)))[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH", name, flags | IFF_UP))


def open_tunnel(address):
    tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(tunnel, TUNSETIFF, struct.pack("16sH14s", b"host0", IFF_TUN | IFF_NO_PI, b""))
    bring_up(b"lo")
    bring_up(b"host0", address)
    return tunnel


def target_of(packet):
    """Returns the target's address and port of a packet. The port is 0 if the packet is not TCP."""
    is_tcp = packet[0] >> 4 == 4 and packet[9] == TCP
    header = (packet[0] & 15) * 4
    port = struct.unpack_from("!H", packet, header + 2)[0] if is_tcp else 0
    return socket.inet_ntoa(packet[16:20]), port


class Network:
    def __init__(self):
        self.delay = 0.0
        self.rate = float("inf")
        self.passes = lambda source, target, port: True
        self._tunnels = {}  # by address
        self._late = []  # a heap of (time, number, address, packet)
        self._waiting = collections.Counter()  # number of packets, by address
        self._free_at = collections.defaultdict(float)  # when a host's link will have sent all its packets
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._wake, self._woken = os.pipe()[::-1]
        self._ends = False
        self._try()
        self._failed = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._ends = True
        os.write(self._wake, b"x")
        self._thread.join()
        for tunnel in (*self._tunnels.values(), self._wake, self._woken):
            os.close(tunnel)
        if self._failed is not None:
            raise self._failed

    def launch(self, server, host):
        """Starts a `world.Server` as host number `host`. Its gRPC is at `PREFIX`host in the network, and at its unix socket here."""
        address = f"{PREFIX}{host}"
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with here, there:

            def enter():
                new_namespace()
                tunnel = open_tunnel(address)
                there.sendmsg(
                    [b"t"],
                    [
                        (
                            socket.SOL_SOCKET,
                            socket.SCM_RIGHTS,
                            array.array("i", [tunnel]),
                        )
                    ],
                )

            server.launch(prepare=enter)
            tunnel = socket.recv_fds(here, 1, 1)[1][0]
        with self._lock:
            gone, self._tunnels[address] = self._tunnels.get(address), tunnel
        if gone is not None:
            os.close(gone)
        os.write(self._wake, b"x")
        if not server.await_ready(f"unix:{server.state_dir}/permafrost.sock"):
            raise RuntimeError(f"permafrostd did not start: {server.log()[-2000:]}")

    def _try(self):
        child = os.fork()
        if child == 0:
            code = 255
            try:
                new_namespace()
                open_tunnel(f"{PREFIX}1")
                code = 0
            except OSError as error:
                code = error.errno or code
            finally:
                os._exit(min(code, 255))
        failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if failed:
            raise NotRun(f"no network of its own: {os.strerror(failed)}; it needs root and /dev/net/tun")

    def _run(self):
        try:
            self._forward()
        except Exception as error:  # noqa: BLE001 - told when the network ends
            self._failed = error

    def _forward(self):
        while not self._ends:
            with self._lock:
                tunnels = dict(self._tunnels)
            wait = max(0.0, self._late[0][0] - time.monotonic()) if self._late else None
            ready, _, _ = select.select([self._woken, *tunnels.values()], [], [], wait)
            if self._woken in ready:
                os.read(self._woken, 100)
            for source, tunnel in tunnels.items():
                if tunnel in ready:
                    self._take(source, tunnel)
            while self._late and self._late[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(self._late)
                self._waiting[target] -= 1
                self._give(tunnels, target, packet)

    def _take(self, source, tunnel):
        try:
            packet = os.read(tunnel, 1 << 16)
        except OSError:  # the process that had it is gone
            return
        if len(packet) < 20:
            return
        target, port = target_of(packet)
        if not self.passes(source, target, port) or self._waiting[target] >= LONGEST_QUEUE:
            return
        sent = max(time.monotonic(), self._free_at[target]) + len(packet) / self.rate
        self._free_at[target] = sent
        self._waiting[target] += 1
        heapq.heappush(self._late, (sent + self.delay, next(self._numbers), target, packet))

    @staticmethod
    def _give(tunnels, target, packet):
        tunnel = tunnels.get(target)
        if tunnel is None:
            return
        try:
            os.write(tunnel, packet)
        except OSError:  # the process that had it is gone
            pass
