package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/services/house"
)

// sinkAddr is where `up` takes mail when no mail server is configured.
const sinkAddr = "127.0.0.1:2525"

type upCommand struct {
	Data         string `env:"POSTHOUSE_DATA" type:"path" help:"Folder of the private servers' data. Default: /var/lib/posthouse for root, else ~/.local/share/posthouse."`
	NATSPort     int    `name:"nats-port" default:"4222" help:"Port of the private NATS server; 0 takes a free one."`
	PostgresPort int    `name:"postgres-port" default:"0" help:"Port of the private PostgreSQL server; 0 takes a free one."`
}

func (c *upCommand) Run(t *terminal) error {
	environ := environment(t.environ)
	if c.Data == "" {
		dir, err := dataDir()
		if err != nil {
			return err
		}
		c.Data = dir
	}
	if environ["LOG_FORMAT"] == "" {
		environ["LOG_FORMAT"] = "console"
	}
	log := daemon.NewLogger(t.err, daemon.Settings{LogFormat: environ["LOG_FORMAT"], LogLevel: environ["LOG_LEVEL"]}, "up", "")
	mail := "to " + environ["MAIL_SERVER_HOST"]
	if environ["MAIL_SERVER_HOST"] == "" {
		sink, err := smtpsink.Start(smtpsink.Options{Addr: sinkAddr})
		if err != nil { // somebody has the port: any other will do
			sink, err = smtpsink.Start(smtpsink.Options{})
		}
		if err != nil {
			return err
		}
		defer func() { _ = sink.Close() }()
		maps.Copy(environ, sinkSettings(sink))
		mail = fmt.Sprintf("to a sink at %s that delivers to nobody: set MAIL_SERVER_HOST for a real server", sink.Addr())
	}
	err := house.Run(t.ctx, house.Options{Dir: c.Data, NATSPort: c.NATSPort, PostgresPort: c.PostgresPort, Environ: environ, LogTo: t.err, Log: log}, func(h house.House) {
		fmt.Fprintf(t.out, "Posthouse is up. Ctrl-C stops it.\n  data        %s\n  NATS        %s\n  PostgreSQL  %s\n  health      http://%s/readyz\n  mail        %s\n",
			c.Data, h.NATSURL, hidePassword(h.DatabaseURL), firstOf(environ["HEALTH_LISTEN"], "127.0.0.1:8081"), mail)
		fmt.Fprintf(t.out, "Try, in another terminal:\n  go run ./services/posthouse send --tenant acme --to you@example.org --subject Hello --text Hi\n  go run ./services/posthouse tail --since 1h\n")
	})
	return err
}

// sinkSettings makes a sink the mail server.
func sinkSettings(sink *smtpsink.Sink) map[string]string {
	return map[string]string{"MAIL_SERVER_HOST": sink.Host(), "MAIL_SERVER_PORT": fmt.Sprint(sink.Port()), "MAIL_SERVER_TLS": "none",
		"MAIL_SERVER_FROM_ADDRESS": "posthouse@example.org"}
}

// dataDir is where `up` keeps its data: a place that the PostgreSQL account can
// enter, which root's home is not.
func dataDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/posthouse", nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("say with --data where the data go: %w", err)
	}
	return filepath.Join(home, ".local", "share", "posthouse"), nil
}

func environment(lines []string) map[string]string {
	out := make(map[string]string, len(lines))
	for _, line := range lines {
		name, value, _ := strings.Cut(line, "=")
		out[name] = value
	}
	return out
}

// hidePassword shows where a database is, not how to get in.
func hidePassword(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	at := strings.LastIndex(rest, "@")
	if !ok || at < 0 {
		return url
	}
	user, _, _ := strings.Cut(rest[:at], ":")
	return scheme + "://" + user + "@" + rest[at+1:]
}

func firstOf(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}
