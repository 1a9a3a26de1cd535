package ndb

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// tlsConfig is the part of a store URL that is about TLS to the MySQL servers.
type tlsConfig struct {
	mode          string // "", off, on, skip-verify
	ca, cert, key string // files; ca empty = the system's certificate authorities
}

func (t tlsConfig) validate() error {
	switch t.mode {
	case "on", "skip-verify":
	case "", "off":
		if t.ca != "" || t.cert != "" || t.key != "" {
			return fmt.Errorf("store URL: option tls: %q, but tls-ca, tls-cert or tls-key is given; set tls=on", t.mode)
		}
	default:
		return fmt.Errorf("store URL: option tls: %q; allowed are off, on, skip-verify", t.mode)
	}
	if (t.cert == "") != (t.key == "") {
		return fmt.Errorf("store URL: options tls-cert and tls-key: give both or none")
	}
	return nil
}

// forAddress returns the TLS configuration for one server; nil = no TLS.
func (t tlsConfig) forAddress(address string) (*tls.Config, error) {
	if t.mode == "" || t.mode == "off" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.mode == "skip-verify"}
	if host, _, err := net.SplitHostPort(address); err == nil {
		c.ServerName = host
	}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("store URL: option tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("store URL: option tls-ca: no certificate in %s", t.ca)
		}
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("store URL: options tls-cert and tls-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
