"""Login and logout, the same on all sites."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import authenticate, login, logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme


def log_in(request: HttpRequest) -> HttpResponse:
    """Show the form, or log in."""
    error = ""
    if request.method == "POST":
        name, password = request.POST.get("username", ""), request.POST.get("password", "")
        user = authenticate(request, username=name, password=password)
        if user is not None:
            login(request, user)
            messages.success(request, f"Welcome back, {user.username}.")
            return redirect(_next(request))
        error = "This username and password do not match."
    return render(request, "accounts/login.html", {"error": error, "next": _next(request)})


def log_out(request: HttpRequest) -> HttpResponse:
    """Log out (POST)."""
    if request.method == "POST":
        logout(request)
        messages.info(request, "You have been logged out.")
    return redirect("/")


def _next(request: HttpRequest) -> str:
    target = request.POST.get("next") or request.GET.get("next") or "/"
    is_safe = url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()})
    return target if is_safe else "/"
