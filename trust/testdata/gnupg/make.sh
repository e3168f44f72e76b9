#!/bin/sh
# Creates the keys and signatures of this folder again. It needs GnuPG 2.2 or later.
# Some keys are of kinds that the libraries of the tests cannot create. The signatures
# are like those that the gpg of a publisher creates. The private keys are deleted at
# the end.
set -eu
cd "$(dirname "$0")"
GNUPGHOME=$(mktemp -d)
export GNUPGHOME
trap 'gpgconf --kill all; rm -rf "$GNUPGHOME"' EXIT
now=20240101T000000
gpg() { command gpg --batch --quiet --yes --no-tty --faked-system-time $now --passphrase '' --pinentry-mode loopback "$@"; }
fingerprint() { gpg --with-colons --list-keys "$1@example.com" | awk -F: '$1 == "fpr" { print $10; exit }'; }

printf '%s  %s\n' e4d41d112b3e1de92cefea9991aca7d58cb4610f6d3229ce3d01c9ddcecf88a4 \
	terraform-provider-null_3.2.4_linux_amd64.zip >SHA256SUMS
while read -r name algorithm; do
	gpg --quick-gen-key "$name <$name@example.com>" "$algorithm" sign never
done <<-END
	dsa2048 dsa2048
	dsa1024 dsa1024
	rsa3072 rsa3072
	ed25519 ed25519
	nistp256 nistp256
	rsa-subkey rsa2048
	revoked ed25519
	revoked-subkey ed25519
	certified rsa4096
END
now=20240101T010000
for name in rsa-subkey revoked-subkey; do
	gpg --quick-add-key "$(fingerprint $name)" ed25519 sign never
done
for use in encr auth sign; do
	gpg --quick-add-key "$(fingerprint certified)" rsa4096 $use never
done
for i in $(seq 300); do
	now=20240101T010000
	gpg --quick-gen-key "certifier$i@example.com" ed25519 sign never
	now=20240101T020000
	gpg -u "certifier$i@example.com" --quick-sign-key "$(fingerprint certified)"
done
for name in dsa2048 dsa1024 rsa3072 ed25519 nistp256 rsa-subkey revoked revoked-subkey certified; do
	gpg -u "$name@example.com" --detach-sign -o "$name.sig" SHA256SUMS
done
gpg -u ed25519@example.com --armor --detach-sign -o ed25519.asc SHA256SUMS
sed 's/^:-----/-----/' "$GNUPGHOME/openpgp-revocs.d/$(fingerprint revoked).rev" | gpg --import
printf '%s\n' 'key 1' revkey y 1 '' y save |
	command gpg --quiet --no-tty --faked-system-time $now --command-fd 0 --edit-key revoked-subkey@example.com
for name in dsa2048 dsa1024 rsa3072 ed25519 nistp256 rsa-subkey revoked revoked-subkey certified; do
	gpg --armor --export "$name@example.com" >"$name.key"
done
for name in *.key; do
	printf '%s %s\n' "${name%.key}" "$(fingerprint "${name%.key}")"
done >FINGERPRINTS
