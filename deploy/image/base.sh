#!/bin/sh
# Builds a base for the image from Debian's packages: Python, without a shell, a package manager or other programs.
#
#   sh deploy/image/base.sh build/image/base.tar
#   sh deploy/image/base.sh build/image/build-base.tar binutils    # one with another package
#
# Needs mmdebstrap. SUITE and PYTHON_PACKAGE choose another Debian, MIRROR another place than mmdebstrap's own.
set -eu
here=$(dirname "$0")
export PYTHON_PACKAGE="${PYTHON_PACKAGE:-python3.11}"
exec mmdebstrap --quiet --variant=extract \
	--include="$PYTHON_PACKAGE-minimal,lib$PYTHON_PACKAGE-stdlib,libstdc++6,libgcc-s1,base-files,netbase,tzdata${2:+,$2}" \
	--extract-hook="sh '$here/finish_base.sh' \"\$1\"" "${SUITE:-bookworm}" "$1" ${MIRROR:+"$MIRROR"}
