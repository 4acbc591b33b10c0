"""Decides which IP addresses are public. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

# In addition to the networks that `ipaddress` of all supported Python versions knows as not global.
_NOT_PUBLIC_V4 = (
    ip_network("168.63.129.16/32"),  # Azure's platform, from within a virtual machine
    ip_network("192.0.0.0/24"),  # protocols; Oracle's metadata
    ip_network("192.88.99.0/24"),  # relays of 6to4
)
_UNICAST_V6 = IPv6Network("2000::/3")  # all global addresses assigned so far
_NAT64 = IPv6Network("64:ff9b::/96")
_NOT_PUBLIC_V6 = (
    IPv6Network("2002::/16"),  # 6to4: contains an IPv4 address that a gateway may connect to
    IPv6Network("2001::/23"),  # protocols, Teredo among them
    IPv6Network("3fff::/20"),  # documentation
)


def is_public(address: str) -> bool:
    """Whether the address is on the public Internet: neither this machine nor in a private or special network, in
    whatever notation. Raises ValueError for text that isn't an IP address.
    """
    ip = ip_address(address)
    return _is_public_v4(ip) if isinstance(ip, IPv4Address) else _is_public_v6(ip)


def _is_public_v4(ip: IPv4Address) -> bool:
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _NOT_PUBLIC_V4)


def _is_public_v6(ip: IPv6Address) -> bool:
    if ip.ipv4_mapped is not None:
        return _is_public_v4(ip.ipv4_mapped)
    if ip in _NAT64:
        return _is_public_v4(IPv4Address(int(ip) & 0xFFFFFFFF))
    return ip.is_global and ip in _UNICAST_V6 and not any(ip in network for network in _NOT_PUBLIC_V6)
