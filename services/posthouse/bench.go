package main

import (
	"github.com/posthouse-io/posthouse/services/bench"
)

type benchCommand struct {
	Quick       bool   `help:"Single runs and smaller loads: under four minutes instead of most of an hour."`
	JSON        bool   `name:"json" help:"Print one JSON object."`
	BesideRiver bool   `name:"beside-river" help:"Measure River on the same server, in turn with Posthouse (needs the Go toolchain and the repository)."`
	RiverDir    string `name:"river-dir" type:"existingdir" help:"Where services/bench/river lies, when not below the present folder."`
	Dir         string `type:"existingdir" help:"Folder on the disk to measure; the data of a full run take about 8 GB. Default: the system's folder for temporary files."`
}

// Run always succeeds unless something breaks: a figure that misses its bar is
// told, not punished.
func (c *benchCommand) Run(t *terminal) error {
	o := bench.Options{Plan: bench.Full(), Quick: c.Quick, BesideRiver: c.BesideRiver, RiverDir: c.RiverDir, Dir: c.Dir, Progress: t.err}
	if c.Quick {
		o.Plan = bench.Quick()
	}
	report, err := bench.Run(t.ctx, o)
	if err != nil {
		return err
	}
	if c.JSON {
		return report.JSON(t.out)
	}
	return report.Table(t.out)
}

// The parts of a bench that run as processes of their own.

type benchNATSCommand struct{}

func (*benchNATSCommand) Run(t *terminal) error { return bench.ServeNATS(t.ctx, t.in, t.out) }

type benchSenderCommand struct{}

func (*benchSenderCommand) Run(t *terminal) error {
	return bench.ServeSender(t.ctx, t.in, t.out, t.err)
}
