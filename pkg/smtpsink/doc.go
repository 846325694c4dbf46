// Package smtpsink is a mail server that keeps no mail but a ledger: for demos,
// tests, load and fault runs. What it does is scripted by the local part of each
// recipient, up to a "+":
//
//	at RCPT
//	defer-N@     451 4.3.0 for the first N tries of this address, then accepted
//	greylist@    451 4.7.1 for the first try of this address, then accepted
//	refuse@      550 5.1.1
//	full@        452 4.2.2
//	throttle@    421 4.7.0
//	auth@        530 5.7.0
//
//	after the final dot, for the whole message (the first such recipient decides)
//	busy@        451 4.3.0
//	spam@        554 5.7.1
//	big@         552 5.3.4
//	stall@       no reply until the client gives up; not accepted
//	stall-accept@    the same, but accepted and in the ledger
//	drop@        closes the connection without a reply; not accepted
//	drop-accept@     the same, but accepted and in the ledger
//	slow-50ms@   accepted after that time (any Go duration up to ten minutes)
//
//	anything else    accepted
//
// A message is in the ledger before the client can learn of it, so a ledger
// entry without a sender that knows of it is the window that SMTP cannot close,
// and the reverse is a fault of somebody's.
//
// It assumes friendly clients: use it on loopback. Start owns all goroutines and
// Close waits for them.
package smtpsink
