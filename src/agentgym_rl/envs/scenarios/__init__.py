"""The environments that come with us: a package each, on one template."""
