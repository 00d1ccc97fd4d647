package amqp_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
)

// certificate makes one for 127.0.0.1 that is its own authority, and returns it
// with the file it is in.
func certificate(t *testing.T) (tls.Certificate, *x509.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, leaf, file
}

// TestTLS: sagas complete over TLS, with the authority from Config.TLS and from
// the URL; a certificate that nobody vouches for, or of another host, is refused.
func TestTLS(t *testing.T) {
	noLeaks(t)
	pair, leaf, file := certificate(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	proxy := newProxyOn(t, l, hostOf(testenv.AMQP(t)))
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	address := "amqps://guest:guest@" + proxy.addr() + "/"
	for name, cfg := range map[string]amqp.Config{
		"Config.TLS": {URLs: []string{address}, TLS: &tls.Config{RootCAs: roots}},
		"the URL":    {URLs: []string{"AMQPS" + strings.TrimPrefix(address, "amqps") + "?cacertfile=" + url.QueryEscape(file)}},
	} {
		r := newRig(t, cfg, saga.Config{PickupWithin: time.Hour, Handover: saga.HandoverPublish})
		r.run(amqp.ConsumerConfig{})
		r.consuming("default")
		r.completed(r.start(nil))
		if strings.Contains(name, "TLS") && cfg.TLS.ServerName != "" {
			t.Errorf("ServerName became %q", cfg.TLS.ServerName)
		}
	}
	for name, cfg := range map[string]amqp.Config{
		"no authority":    {URLs: []string{address}},
		"another host":    {URLs: []string{address}, TLS: &tls.Config{RootCAs: roots, ServerName: "rabbit.example"}},
		"no such file":    {URLs: []string{address + "?cacertfile=" + url.QueryEscape(file+"x")}},
		"no certificates": {URLs: []string{address + "?cacertfile=" + url.QueryEscape(os.Args[0])}},
	} {
		if _, err := amqp.OpenAdmin(t.Context(), cfg); err == nil || strings.Contains(err.Error(), "guest:guest") {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}
