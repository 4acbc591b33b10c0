#!/bin/sh
# A hook of base.sh: adds what packages would make at their installation, and removes what no node reads.
set -eu
cd "$1"

# The package of certificate authorities depends on openssl, debconf and Perl: only its files are wanted.
cd tmp
APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -qq download ca-certificates
dpkg-deb -x ca-certificates_*.deb authorities
mkdir -p ../etc/ssl/certs
cat authorities/usr/share/ca-certificates/mozilla/*.crt > ../etc/ssl/certs/ca-certificates.crt
rm -r authorities ca-certificates_*.deb
cd ..

mkdir -p home/nonroot
chown 65532:65532 home/nonroot
{
	echo "root:x:0:0:root:/root:/sbin/nologin"
	echo "nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin"
} > etc/passwd
printf 'root:x:0:\nnonroot:x:65532:\n' > etc/group
echo "hosts: files dns" > etc/nsswitch.conf
ln -sf "$PYTHON_PACKAGE" usr/bin/python3

# Programs that packages bring along.
rm -rf bin/* sbin/* usr/sbin/* usr/bin/dpkg* usr/bin/debconf* usr/bin/update-alternatives usr/bin/mawk
# Documentation, and tables for encodings that Python has itself.
rm -rf usr/share/doc usr/share/man usr/share/locale usr/share/info usr/share/lintian usr/share/bug usr/share/i18n
rm -rf usr/share/perl5 usr/share/pixmaps usr/share/applications usr/share/binfmts usr/share/gcc usr/share/gdb
rm -rf usr/share/debconf usr/share/dpkg usr/share/common-licenses usr/share/bash-completion usr/share/polkit-1
rm -rf usr/lib/*/gconv usr/lib/*/audit usr/lib/*/perl*
# Parts of Python for developers.
rm -rf usr/lib/python3*/lib2to3 usr/lib/python3*/pydoc_data usr/lib/python3*/idlelib usr/lib/python3*/turtle*
rm -rf usr/lib/python3*/ensurepip usr/lib/python3*/test
# Settings of programs that aren't there.
rm -rf var/cache/* etc/dpkg etc/cron.daily etc/logrotate.d etc/update-motd.d etc/debconf.conf
