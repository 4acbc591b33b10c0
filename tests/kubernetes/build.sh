#!/bin/sh
# Builds kube-apiserver from Debian's source package into FOLDER/usr/bin: sh build.sh FOLDER
# As root on Debian 12, about 11 minutes on two cores and 4 GB of disk, which are given back at the end.
set -e

[ -n "$1" ] || { echo "usage: sh build.sh FOLDER" >&2; exit 2; }
mkdir -p "$1/usr/bin"
program=$(cd "$1/usr/bin" && pwd)/kube-apiserver
[ -x "$program" ] && exit
[ "$(id -u)" = 0 ] || { echo "the packages that kube-apiserver is built with are installed by root only" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends dpkg-dev golang-1.19-go golang-github-modern-go-reflect2-dev rsync \
	> /dev/null

# The same sources as this machine's packages, without a change to its lists.
mkdir -p "$work/parts" "$work/lists/partial"
for file in /etc/apt/sources.list.d/*.sources; do
	[ ! -e "$file" ] || sed 's/^Types: *deb$/Types: deb-src/' "$file" > "$work/parts/$(basename "$file")"
done
[ ! -e /etc/apt/sources.list ] || sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > "$work/parts/here.list"
cd "$work"
from="-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=$work/parts -o Dir::State::lists=$work/lists \
	-o APT::Sandbox::User=root"
apt-get -qq $from update
apt-get -qq $from source --download-only kubernetes
dpkg-source --no-check --extract kubernetes_*.dsc tree > /dev/null

# The vendored reflect2 crashes with Go 1.18 and newer as soon as there is a CustomResourceDefinition.
cd tree
rm -r vendor/github.com/modern-go/reflect2
cp -r /usr/share/gocode/src/github.com/modern-go/reflect2 vendor/github.com/modern-go
rm vendor/github.com/modern-go/reflect2/go.mod

# As the package's own rules build it.
export GOPATH="$PWD/.go" GOCACHE="$work/cache" HOME="$work" GOPROXY=off CGO_ENABLED=0 PATH="/usr/lib/go-1.19/bin:$PATH"
mkdir -p .go/src/k8s.io
ln -s ../../.. .go/src/k8s.io/kubernetes
cd .go/src/k8s.io/kubernetes
make WHAT=cmd/kube-apiserver
cp _output/bin/kube-apiserver "$program.part"
mv "$program.part" "$program"
