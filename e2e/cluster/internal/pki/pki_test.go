package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func parse(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	_, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(t, err, "certificate and key must belong together")
	block, rest := pem.Decode(pair.Cert)
	require.NotNil(t, block)
	require.Empty(t, rest)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return cert
}

func TestCertificatesAreValidForWhatTheyWereMade(t *testing.T) {
	now := time.Now()
	authority, err := NewAuthority("ours", now)
	require.NoError(t, err)
	other, err := NewAuthority("others", now)
	require.NoError(t, err)
	ours, theirs := x509.NewCertPool(), x509.NewCertPool()
	require.True(t, ours.AppendCertsFromPEM(authority.Cert))
	require.True(t, theirs.AppendCertsFromPEM(other.Cert))

	server, err := authority.Server("api", now, "10.99.0.1", "kubernetes.default.svc")
	require.NoError(t, err)
	client, err := authority.Client("system:node:n", now, "system:nodes")
	require.NoError(t, err)
	peer, err := authority.Peer("etcd", now, "127.0.0.1")
	require.NoError(t, err)

	for name, c := range map[string]struct {
		pair    Pair
		roots   *x509.CertPool
		host    string
		usage   x509.ExtKeyUsage
		at      time.Time
		wantErr bool
	}{
		"a server by its address":                {pair: server, roots: ours, host: "10.99.0.1", usage: x509.ExtKeyUsageServerAuth},
		"a server by its name":                   {pair: server, roots: ours, host: "kubernetes.default.svc", usage: x509.ExtKeyUsageServerAuth},
		"a server by another name":               {pair: server, roots: ours, host: "example.com", usage: x509.ExtKeyUsageServerAuth, wantErr: true},
		"a server as a client":                   {pair: server, roots: ours, usage: x509.ExtKeyUsageClientAuth, wantErr: true},
		"a client":                               {pair: client, roots: ours, usage: x509.ExtKeyUsageClientAuth},
		"a client as a server":                   {pair: client, roots: ours, usage: x509.ExtKeyUsageServerAuth, wantErr: true},
		"a client of another authority":          {pair: client, roots: theirs, usage: x509.ExtKeyUsageClientAuth, wantErr: true},
		"a peer as a server":                     {pair: peer, roots: ours, host: "127.0.0.1", usage: x509.ExtKeyUsageServerAuth},
		"a peer as a client":                     {pair: peer, roots: ours, usage: x509.ExtKeyUsageClientAuth},
		"after five years":                       {pair: client, roots: ours, usage: x509.ExtKeyUsageClientAuth, at: now.AddDate(5, 0, 0)},
		"by a clock that is half an hour behind": {pair: client, roots: ours, usage: x509.ExtKeyUsageClientAuth, at: now.Add(-30 * time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			at := c.at
			if at.IsZero() {
				at = now
			}
			_, err := parse(t, c.pair).Verify(x509.VerifyOptions{Roots: c.roots, DNSName: c.host, KeyUsages: []x509.ExtKeyUsage{c.usage}, CurrentTime: at})
			if c.wantErr {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

func TestClientCarriesUserAndGroups(t *testing.T) {
	authority, err := NewAuthority("ours", time.Now())
	require.NoError(t, err)
	pair, err := authority.Client("system:node:n", time.Now(), "system:nodes", "more")
	require.NoError(t, err)
	cert := parse(t, pair)
	require.Equal(t, "system:node:n", cert.Subject.CommonName)
	require.ElementsMatch(t, []string{"system:nodes", "more"}, cert.Subject.Organization)
}

func TestKeysAreForTheirOwnerOnly(t *testing.T) {
	folder := t.TempDir()
	authority, err := NewAuthority("ours", time.Now())
	require.NoError(t, err)
	require.NoError(t, authority.Write(folder, "ca"))
	info, err := os.Stat(filepath.Join(folder, "ca.key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestSigningKeysBelongTogether(t *testing.T) {
	private, public, err := NewSigningKey()
	require.NoError(t, err)
	privateBlock, _ := pem.Decode(private)
	key, err := x509.ParsePKCS8PrivateKey(privateBlock.Bytes)
	require.NoError(t, err)
	publicBlock, _ := pem.Decode(public)
	parsed, err := x509.ParsePKIXPublicKey(publicBlock.Bytes)
	require.NoError(t, err)
	require.True(t, key.(*ecdsa.PrivateKey).PublicKey.Equal(parsed))
}
