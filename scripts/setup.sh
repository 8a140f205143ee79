#!/usr/bin/env bash
# Makes the virtual environment given as $1 with everything the project and its tests use.
# A Debian machine without Python's venv module gets it from the system's packages first, and a
# browser for the tests of the web UI.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Python 3.11 or newer is needed; $python is $("$python" --version 2>&1). Set PYTHON=..." >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "installing Python's venv module"
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq python3-venv
fi
install_browser() {
    command -v chromium-headless-shell chromium chromium-browser google-chrome >/dev/null && return
    echo "installing Chromium"
    local sudo=$([ "$(id -u)" = 0 ] || echo sudo -n)
    { $sudo apt-get update -qq && $sudo apt-get install -y -qq chromium-headless-shell; } ||
        echo "no Chromium could be installed: the tests of the web UI will be skipped" >&2
}
install_browser & # beside the packages: both mostly wait for the network
[ -x "$venv/bin/pip" ] || "$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "torch==$(sed -n 's/^torch==//p' constraints.txt)"
"$venv/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
wait
