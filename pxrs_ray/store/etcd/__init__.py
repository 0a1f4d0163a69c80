"""The registry in etcd, through the package etcd3."""
