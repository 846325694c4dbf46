package chaos

import (
	"errors"
	"io"
	"net"
)

// piece is what travels in one step: a message of a protocol, or some bytes.
type piece struct {
	label string // what a trap may wait for; empty: nothing of interest
	raw   []byte
}

// splitter cuts what one side says into pieces. next returns what it has together
// with the error that ended it.
type splitter interface{ next() (piece, error) }

// protocol makes the splitters of one connection's two ways.
type protocol func(client, server io.Reader) (up, down splitter)

// maxPiece bounds one message, in bytes; what claims to be longer ends its connection.
const maxPiece = 32 << 20

var errTooLong = errors.New("a message is too long for the proxy")

// plain carries bytes as they come.
type plain struct {
	from   net.Conn
	buffer []byte
}

func bytesOf(c net.Conn) *plain { return &plain{from: c, buffer: make([]byte, 64<<10)} }

func (p *plain) next() (piece, error) {
	n, err := p.from.Read(p.buffer)
	return piece{raw: p.buffer[:n]}, err
}
