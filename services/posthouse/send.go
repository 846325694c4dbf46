package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

type sendCommand struct {
	server
	Tenant  string   `short:"t" required:"" help:"Tenant that sends."`
	ID      string   `help:"The request's id: the same id is sent once, however often it is published. Default: a fresh one."`
	To      []string `help:"Recipients." xor:"body"`
	Subject string   `help:"Subject."`
	Text    string   `help:"Text of the mail."`
	Class   string   `enum:"otp,transactional,bulk" default:"transactional" help:"otp, transactional or bulk."`
	File    string   `short:"f" help:"A whole request in JSON instead; - is standard input." xor:"body"`
}

func (c *sendCommand) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		if c.File != "" {
			body, err := c.read(t.in)
			if err != nil {
				return err
			}
			if _, err := delivery.DecodeRequest(body, c.ID); err != nil {
				return fmt.Errorf("%s would be refused: %w", c.File, err)
			}
			return p.SendRaw(t.ctx, delivery.Mail, c.Tenant, c.ID, body)
		}
		if len(c.To) == 0 {
			return errors.New("say to whom with --to, or give a whole request with --file")
		}
		if c.ID == "" {
			c.ID = delivery.NewID().String()
		}
		err := p.Send(t.ctx, delivery.Mail, c.Tenant, delivery.Request{ID: c.ID, Class: c.Class,
			MailRequest: delivery.MailRequest{To: c.To, Subject: c.Subject, Text: c.Text}})
		if err == nil {
			fmt.Fprintln(t.out, c.ID)
		}
		return err
	})
}

func (c *sendCommand) read(in io.Reader) ([]byte, error) {
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	return io.ReadAll(io.LimitReader(in, delivery.MaxRequestBytes+1))
}
