package daemon

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse-io/posthouse/pkg/bus"
)

// Settings are what every service needs to live; a service embeds them in its
// own configuration.
type Settings struct {
	DatabaseURL      Secret `env:"DATABASE_URL,notEmpty" like:"postgres://user:password@host:5432/posthouse?sslmode=verify-full" doc:"PostgreSQL, the system of record; sslmode in the URL decides on TLS. A transaction pooler may stand in between."`
	DatabaseMaxConns int32  `env:"DATABASE_MAX_CONNS" envDefault:"10" min:"1" max:"1000" doc:"Connections to PostgreSQL that one process may hold."`

	NATS bus.Config

	HealthListen string `env:"HEALTH_LISTEN" envDefault:"127.0.0.1:8081" empty:"off" like:"127.0.0.1:8081 (empty: off)" doc:"Where /healthz and /readyz are served; empty is off."`

	LogLevel  string `env:"LOG_LEVEL" envDefault:"info" oneof:"trace|debug|info|warn|error" doc:"The least important line that is written."`
	LogFormat string `env:"LOG_FORMAT" envDefault:"json" oneof:"json|console" doc:"Lines for machines or for people, on standard error."`

	ShutdownTimeout time.Duration `env:"SHUTDOWN_TIMEOUT" envDefault:"30s" min:"1s" max:"1h" doc:"How long work in hand may go on after SIGTERM. The supervisor's own limit must be 15 s longer."`

	// LogTo receives the log of a service that runs inside another process; nil
	// is standard error.
	LogTo io.Writer `env:"-"`

	OTLPEndpoint  string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" like:"http://collector:4318 (empty: off)" doc:"Collector for traces and metrics (OTLP over HTTP); empty is off."`
	OTLPNamespace string `env:"OTEL_SERVICE_NAMESPACE" doc:"The service.namespace of traces and metrics."`
}

// sslModes are the words of PostgreSQL's own clients.
var sslModes = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

var sslMode = regexp.MustCompile(`[?&]sslmode=([^&]*)`)

// Faults are the faults that a tag cannot find. It connects to nothing.
func (s *Settings) Faults() []string {
	var faults Faults
	if raw := s.DatabaseURL.Reveal(); raw != "" {
		if reason := databaseFault(raw); reason != "" {
			faults.add("DATABASE_URL: %s; it must be a PostgreSQL URL, such as postgres://user:password@host:5432/posthouse?sslmode=verify-full", reason)
		}
	}
	if s.HealthListen != "" && !listenable(s.HealthListen) {
		faults.add("HEALTH_LISTEN: %s is no address to listen on; it must be host:port, such as 127.0.0.1:8081, or empty for off", shown(s.HealthListen, false))
	}
	if e := s.OTLPEndpoint; e != "" {
		u, err := url.Parse(e)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.RawQuery != "" {
			faults.add("OTEL_EXPORTER_OTLP_ENDPOINT: %s is not valid; it must be an http or https URL, such as http://collector:4318, or empty for off", shown(e, false))
		}
	}
	return faults
}

// databaseFault says what is wrong with a database URL, in words of our own:
// the errors of the parsers quote what they could not parse, at times with the
// password in it.
func databaseFault(raw string) string {
	if !strings.HasPrefix(raw, "postgres://") && !strings.HasPrefix(raw, "postgresql://") {
		return "it does not begin with postgres://"
	}
	if m := sslMode.FindStringSubmatch(raw); m != nil && !slices.Contains(sslModes, m[1]) {
		return "its sslmode is none of " + strings.Join(sslModes, ", ")
	}
	cfg, err := pgxpool.ParseConfig(raw)
	switch {
	case err != nil:
		return "it cannot be parsed (characters such as @ / ? # % in a password must be percent-encoded; a port is a number; a certificate file must exist)"
	case cfg.ConnConfig.Database == "":
		return "it has no database name"
	}
	return ""
}

func listenable(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil && port != ""
}

// Warnings tell of what works but is unlikely to be meant.
func (s *Settings) Warnings() []string {
	cfg, err := pgxpool.ParseConfig(s.DatabaseURL.Reveal())
	if err != nil || cfg.ConnConfig.TLSConfig != nil || private(cfg.ConnConfig.Host) {
		return nil
	}
	return []string{fmt.Sprintf("DATABASE_URL: the connection to %s is not encrypted; add sslmode=verify-full", cfg.ConnConfig.Host)}
}

// private tells of hosts that no stranger sits between: sockets, this machine,
// private networks, and bare names as containers have them.
func private(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback() || ip.IsPrivate()
	}
	return strings.HasPrefix(host, "/") || !strings.Contains(host, ".")
}

// pool is the configuration of the connection pool: no session state, so that a
// transaction pooler may stand in between, and connections that come and go at
// different times, so that a failover is not answered by a storm.
func (s *Settings) pool(name string) (*pgxpool.Config, error) {
	raw := s.DatabaseURL.Reveal()
	cfg, err := pgxpool.ParseConfig(raw)
	if err != nil {
		return nil, Faults{"DATABASE_URL: it cannot be parsed; it must be a PostgreSQL URL"}
	}
	cfg.MaxConns = max(s.DatabaseMaxConns, 1)
	cfg.MinConns = min(cfg.MinConns, cfg.MaxConns)
	cfg.MaxConnLifetime = 30 * time.Minute
	cfg.MaxConnLifetimeJitter = 5 * time.Minute
	cfg.MaxConnIdleTime = 5 * time.Minute
	cfg.PingTimeout = 2 * time.Second
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	cfg.ConnConfig.RuntimeParams["application_name"] = "posthouse-" + name
	// Statements are prepared by name, which PgBouncer (1.21 and later, with
	// max_prepared_statements) carries over; an older pooler needs
	// default_query_exec_mode=cache_describe in the URL.
	return cfg, nil
}
