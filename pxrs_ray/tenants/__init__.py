"""Tenants: to whom a message belongs, where it goes, which consumers serve it, and how that changes
at run time.

Rules of this package: pure. A tenant is shared (its messages are in the service's queue, among
others') or isolated (it has a queue and consumers of its own).
"""

from __future__ import annotations

from pxrs_ray.tenants.migration import Route, TenantMove
from pxrs_ray.tenants.profile import Destination, Service, TenantDirectory, TenantProfile

__all__ = ["Destination", "Route", "Service", "TenantDirectory", "TenantMove", "TenantProfile"]
