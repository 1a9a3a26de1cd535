package ndb

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// passwordVariable is the environment variable that holds the password when the URL names no file.
const passwordVariable = "FLINKNDB_DB_PASSWORD"

// Engine is a storage engine of the MySQL server.
type Engine string

// The engines that the store works with.
const (
	EngineNDB    Engine = "ndb"
	EngineInnoDB Engine = "innodb"
)

// Durability is what Commit.Wait waits for.
type Durability string

const (
	// DurabilityReplicated: NDB has committed in the memory of all replicas. The loss of all data
	// nodes at once may lose the last seconds.
	DurabilityReplicated Durability = "replicated"
	// DurabilityDisk: the global checkpoint that holds the transaction is on the data nodes' disks.
	DurabilityDisk Durability = "disk"
)

// config is a parsed store URL.
type config struct {
	user       string
	password   string
	addresses  []string // "host:port", or the path of a Unix socket
	database   string
	engine     Engine
	durability Durability
	// pool bounds the connections to each MySQL server.
	pool int
	// retryTimeout bounds retries of temporary failures where the context has no earlier deadline.
	retryTimeout time.Duration
	tls          tlsConfig
}

const urlForm = "mysql://USER@HOST[:PORT][,HOST2[:PORT]...]/DATABASE[?engine=ndb|innodb&durability=replicated|disk&pool=N&retry-timeout=60s&password-file=FILE&tls=off|on|skip-verify&tls-ca=FILE&tls-cert=FILE&tls-key=FILE]"

// parseURL reads a store URL. net/url is not used for the authority, which may list several hosts.
func parseURL(raw string) (config, error) {
	cfg := config{engine: EngineNDB, durability: DurabilityReplicated, pool: 16, retryTimeout: time.Minute}
	rest, ok := strings.CutPrefix(raw, "mysql://")
	if !ok {
		return cfg, fmt.Errorf("store URL: must start with mysql://; the form is %s", urlForm)
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, database, _ := strings.Cut(rest, "/")
	if err := cfg.setDatabase(database); err != nil {
		return cfg, err
	}
	if err := cfg.setAuthority(authority); err != nil {
		return cfg, err
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return cfg, fmt.Errorf("store URL: options: %w", err)
	}
	for name, values := range options {
		if len(values) != 1 {
			return cfg, fmt.Errorf("store URL: option %s: given %d times", name, len(values))
		}
		if err := cfg.setOption(name, values[0]); err != nil {
			return cfg, fmt.Errorf("store URL: option %w", err)
		}
	}
	if cfg.engine == EngineInnoDB && cfg.durability == DurabilityDisk {
		return cfg, fmt.Errorf("store URL: option durability: disk is for engine=ndb; with innodb every commit is on the server's disk (innodb_flush_log_at_trx_commit=1)")
	}
	if cfg.engine == EngineInnoDB && len(cfg.addresses) > 1 {
		return cfg, fmt.Errorf("store URL: %d hosts; with engine=innodb only one is allowed, since only NDB has the same data behind every MySQL server", len(cfg.addresses))
	}
	if err := cfg.tls.validate(); err != nil {
		return cfg, err
	}
	return cfg, cfg.findPassword(options.Get("password-file"))
}

func (c *config) setDatabase(name string) error {
	if name == "" {
		return fmt.Errorf("store URL: no database; the form is %s", urlForm)
	}
	for _, r := range name {
		if !(r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			// The whole name may be the rest of a password that has a slash in it.
			return fmt.Errorf("store URL: the database, which is what follows the first /, has a %q: allowed are letters, digits, '_' and '-'", r)
		}
	}
	c.database = name
	return nil
}

func (c *config) setAuthority(authority string) error {
	user, hosts, ok := cutLast(authority, "@")
	if !ok || user == "" {
		return fmt.Errorf("store URL: no user; the form is %s", urlForm)
	}
	if strings.Contains(user, ":") {
		return fmt.Errorf("store URL: holds a password, which process lists and logs would show; use the option password-file or the environment variable %s", passwordVariable)
	}
	var err error
	if c.user, err = url.PathUnescape(user); err != nil {
		return fmt.Errorf("store URL: user: %w", err)
	}
	for _, h := range strings.Split(hosts, ",") {
		address, err := parseHost(h)
		if err != nil {
			return fmt.Errorf("store URL: host %q: %w", h, err)
		}
		c.addresses = append(c.addresses, address)
	}
	return nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+len(sep):], true
}

// parseHost returns "host:port", or the path of a Unix socket (written with %2F for '/').
func parseHost(h string) (string, error) {
	h, err := url.PathUnescape(h)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(h, "/") {
		return h, nil
	}
	host, port, err := net.SplitHostPort(h)
	if err != nil {
		host, port = strings.Trim(h, "[]"), "3306"
	}
	if host == "" {
		return "", fmt.Errorf("empty host name")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("port %q: allowed are 1 to 65535", port)
	}
	return net.JoinHostPort(host, port), nil
}

// setOption sets one option; the error starts with the option's name.
func (c *config) setOption(name, value string) error {
	switch name {
	case "engine":
		c.engine = Engine(value)
		if c.engine != EngineNDB && c.engine != EngineInnoDB {
			return fmt.Errorf("engine: %q; allowed are ndb, innodb", value)
		}
	case "durability":
		c.durability = Durability(value)
		if c.durability != DurabilityReplicated && c.durability != DurabilityDisk {
			return fmt.Errorf("durability: %q; allowed are replicated, disk", value)
		}
	case "pool":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > 1000 {
			return fmt.Errorf("pool: %q; allowed are 1 to 1000 connections", value)
		}
		c.pool = n
	case "retry-timeout":
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 || d > time.Hour {
			return fmt.Errorf("retry-timeout: %q; allowed are 0s to 1h, as in 60s", value)
		}
		c.retryTimeout = d
	case "password-file": // read at the end
	case "tls":
		c.tls.mode = value
	case "tls-ca":
		c.tls.ca = value
	case "tls-cert":
		c.tls.cert = value
	case "tls-key":
		c.tls.key = value
	default:
		return fmt.Errorf("%s: unknown; the form is %s", name, urlForm)
	}
	return nil
}

func (c *config) findPassword(file string) error {
	if file == "" {
		c.password = os.Getenv(passwordVariable)
		return nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("store URL: option password-file: %w", err)
	}
	c.password = strings.TrimRight(string(b), "\r\n")
	return nil
}

// name describes the store without secrets.
func (c *config) name() string {
	return fmt.Sprintf("mysql://%s/%s (%s, durability %s)", strings.Join(c.addresses, ","), c.database, c.engine, c.durability)
}
