"""The shop and its back office: django-oscar, as it comes."""
