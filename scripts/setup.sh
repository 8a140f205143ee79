#!/usr/bin/env bash
# setup.sh VENV EXTRAS [browser]: makes the virtual environment VENV, or brings it up to date, with
# the package and the named extras. A Debian machine without Python's venv module gets it from the
# system's packages first. With `browser` Chromium is installed too, for the tests of the web UI.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
extras=$2
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Python 3.11 or newer is needed; $python is $("$python" --version 2>&1). Set PYTHON=..." >&2
    exit 1
fi
# A password can be typed for Python's venv module, which is a must, but not beside other output.
apt_install() {
    local sudo=$1
    shift
    [ "$(id -u)" != 0 ] || sudo=
    $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends "$@"
}
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "installing Python's venv module"
    apt_install sudo python3-venv
fi
install_browser() {
    command -v chromium-headless-shell chromium chromium-browser google-chrome >/dev/null && return
    echo "installing Chromium"
    apt_install 'sudo -n' chromium-headless-shell fonts-dejavu-core ||
        echo "no Chromium could be installed: the tests of the web UI will be skipped" >&2
}
if [ "${3:-}" = browser ]; then
    install_browser & # beside the packages: both mostly wait for the network
fi
[ -x "$venv/bin/pip" ] || "$python" -m venv "$venv"
pip_install() {
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
}
echo "installing packages into $venv: a few minutes the first time"
# torch first, at its pinned version: an unpinned request for it by another package may bring several
# gigabytes of CUDA libraries along.
pip_install "torch==$(sed -n 's/^torch==//p' constraints.txt)"
pip_install -c constraints.txt -e ".[$extras]"
wait
