#!/usr/bin/env bash
# Builds and installs the C library: liblacuna.so, liblacuna.a, the headers and
# a file for pkg-config. Needs Rust and a C compiler, nothing else.
#
#   scripts/install-c.sh --prefix /usr/local
#
#   --prefix DIR    where to (default /usr/local)
#   --destdir DIR   put everything below DIR, for packagers
#   --libdir DIR    where the libraries go (default PREFIX/lib)
#   --built DIR     take the libraries from DIR instead of building them
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
prefix=/usr/local destdir='' libdir='' built=''

usage() {
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case "$1" in
    --prefix) prefix="$2" ;;
    --destdir) destdir="$2" ;;
    --libdir) libdir="$2" ;;
    --built) built="$2" ;;
    *) usage ;;
    esac
    shift 2
done
case "$prefix" in /*) ;; *) prefix="$PWD/$prefix" ;; esac
libdir="${libdir:-$prefix/lib}"
includedir="$prefix/include"

version="$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")"
# As build.rs says it to the linker: before 1.0 a minor version may break.
case "$version" in
0.*) abi="${version%.*}" ;;
*) abi="${version%%.*}" ;;
esac

# What a static library of Rust needs of the system, on Linux with glibc.
static_libs="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"
if [ -z "$built" ]; then
    cd "$root"
    # One kind at a time: only then is the whole program optimised together.
    for kind in cdylib staticlib; do
        cargo rustc --locked --release -p lacuna-capi --lib --crate-type "$kind"
    done
    built="${CARGO_TARGET_DIR:-$root/target}/release"
fi

lib="$destdir$libdir" include="$destdir$includedir"
mkdir -p "$lib/pkgconfig" "$include"
install -m 755 "$built/liblacuna_capi.so" "$lib/liblacuna.so.$version"
ln -sfn "liblacuna.so.$version" "$lib/liblacuna.so.$abi"
ln -sfn "liblacuna.so.$abi" "$lib/liblacuna.so"
install -m 644 "$built/liblacuna_capi.a" "$lib/liblacuna.a"
install -m 644 "$root"/crates/lacuna-capi/include/*.h "$include"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@INCLUDEDIR@|$includedir|" \
    -e "s|@VERSION@|$version|" -e "s|@STATIC_LIBS@|$static_libs|" \
    "$root/crates/lacuna-capi/lacuna.pc.in" >"$lib/pkgconfig/lacuna.pc"
# In its own folders the loader finds libraries by a cache.
if [ -z "$destdir" ] && [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null &&
    ldconfig -NXv 2>/dev/null | grep "^$libdir:" >/dev/null; then
    ldconfig
fi
echo "installed liblacuna $version: $lib, $include"
