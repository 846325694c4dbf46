package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/posthouse-io/posthouse/pkg/smtpsink"
)

type healthCommand struct {
	URL string `arg:"" optional:"" default:"http://127.0.0.1:8081/readyz" help:"Readiness endpoint."`
}

func (c *healthCommand) Run(t *terminal) error {
	req, err := http.NewRequestWithContext(t.ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 3 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(t.out, io.LimitReader(res.Body, 64<<10)); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", c.URL, res.Status)
	}
	return nil
}

type sinkCommand struct {
	Listen string `default:"127.0.0.1:2525" help:"Where to listen."`
	File   string `type:"path" help:"Append each accepted mail to this file, one JSON line each."`
}

func (c *sinkCommand) Run(t *terminal) error {
	sink, err := smtpsink.Start(smtpsink.Options{Addr: c.Listen, File: c.File, Ledger: func(e smtpsink.Entry) {
		fmt.Fprintf(t.out, "%s  from %s to %d, %d bytes, %s\n", e.Time.UTC().Format(time.RFC3339), e.From, len(e.To), e.Size, e.MessageID)
	}})
	if err != nil {
		return err
	}
	fmt.Fprintf(t.err, "the sink takes mail at %s and delivers it to nobody; Ctrl-C ends it\n", sink.Addr())
	<-t.ctx.Done()
	return sink.Close()
}
