# Stands in a container without a network, whose loopback a build's steps share, and carries each connection to
# 127.0.0.1:3128 over its own stdin and stdout to the gateway on the host. It decides nothing.
#
# Perl, because every Debian and Ubuntu has it (perl-base is essential) before anything is installed; Python is not
# there yet. It speaks the wire of runner/wire: frames of a length, a channel and a payload; channel 0 holds JSON. Of
# the messages it needs three (Dial, Credit, Reset), and of JSON only what these hold.
use strict;
use warnings;
use Errno qw(EAGAIN EINTR);
use Fcntl;
use Socket;

my ($PORT, $WINDOW, $CHUNK, $MOST) = (3128, 1048576, 262144, 400);
my $BACKLOG = 4 * 1024 * 1024;    # bytes waiting for the host; above that no program is read from
my ($in, $out, $next, %open, %of) = ('', '', 1);
$SIG{PIPE} = 'IGNORE';

sub nonblocking {
    my ($handle) = @_;
    my $flags = fcntl($handle, F_GETFL, 0) or die "sbx: fcntl: $!\n";
    fcntl($handle, F_SETFL, $flags | O_NONBLOCK) or die "sbx: fcntl: $!\n";
}

sub frame { my ($channel, $data) = @_; $out .= pack('NN', length $data, $channel) . $data }

sub drop {
    my ($c, $reset) = @_;
    frame(0, qq({"type":"Reset","channel":$c->{channel},"reason":"$reset"})) if $reset;
    delete $of{fileno $c->{handle}};
    delete $open{$c->{channel}};
    close $c->{handle};
}

sub over { my ($c) = @_; drop($c) if $c->{read_end} && $c->{host_end} && !length $c->{out} }

sub accept_one {
    my ($listener) = @_;
    accept(my $handle, $listener) or return;
    if (keys %open >= $MOST) { close $handle; return }
    nonblocking($handle);
    my $c = { handle => $handle, channel => $next, out => '', credit => $WINDOW, owed => 0 };
    $next += 2;
    $open{ $c->{channel} } = $of{ fileno $handle } = $c;
    frame(0, qq({"type":"Dial","channel":$c->{channel},"service":"proxy","call":""}));
}

sub from_program {
    my ($c) = @_;
    my $size = $c->{credit} < $CHUNK ? $c->{credit} : $CHUNK;
    my $got = sysread $c->{handle}, my $data, $size;
    if (!defined $got) { drop($c, 'the connection broke') unless $! == EAGAIN || $! == EINTR; return }
    $c->{credit} -= $got;
    frame($c->{channel}, $data);
    if (!$got) { $c->{read_end} = 1; over($c) }
}

sub to_program {
    my ($c) = @_;
    my $sent = syswrite $c->{handle}, $c->{out};
    if (!defined $sent) { drop($c, 'the connection broke') unless $! == EAGAIN || $! == EINTR; return }
    substr $c->{out}, 0, $sent, '';
    $c->{owed} += $sent;
    if ($c->{owed} >= $WINDOW / 4) {
        frame(0, qq({"type":"Credit","channel":$c->{channel},"bytes":$c->{owed}}));
        $c->{owed} = 0;
    }
    finish($c) if $c->{host_end} && !length $c->{out};
}

sub finish { my ($c) = @_; shutdown $c->{handle}, 1; over($c) }

sub message {
    my ($text) = @_;
    my ($type) = $text =~ /"type":"(\w+)"/ or return;
    my ($channel) = $text =~ /"channel":(\d+)/ or return;
    my $c = $open{$channel} or return;
    if ($type eq 'Credit' && $text =~ /"bytes":(\d+)/) { $c->{credit} += $1 }
    elsif ($type eq 'Reset') { drop($c) }
}

sub from_host {
    my $got = sysread STDIN, $in, 262144, length $in;
    if (!defined $got) { return if $! == EAGAIN || $! == EINTR; exit 1 }
    exit 0 unless $got;
    my $at = 0;
    while (length($in) - $at >= 8) {
        my ($size, $channel) = unpack 'NN', substr $in, $at, 8;
        last if length($in) - $at < 8 + $size;
        my $data = substr $in, $at + 8, $size;
        $at += 8 + $size;
        if ($channel == 0) { message($data); next }
        my $c = $open{$channel} or next;
        if (length $data) { $c->{out} .= $data }
        else { $c->{host_end} = 1; finish($c) unless length $c->{out} }
    }
    substr $in, 0, $at, '' if $at;
}

sub to_host {
    my $sent = syswrite STDOUT, $out, 262144;
    if (!defined $sent) { exit 1 unless $! == EAGAIN || $! == EINTR; return }
    substr $out, 0, $sent, '';
}

socket(my $listener, PF_INET, SOCK_STREAM, 0) or die "sbx: socket: $!\n";
setsockopt($listener, SOL_SOCKET, SO_REUSEADDR, pack 'l', 1);
bind($listener, sockaddr_in($PORT, INADDR_LOOPBACK)) or die "sbx: bind: $!\n";
listen($listener, 256) or die "sbx: listen: $!\n";
nonblocking($_) for $listener, *STDIN, *STDOUT;
frame(0, '{"type":"Event","name":"build.ready","data":{}}');

while (1) {
    my ($reads, $writes) = ('', '');
    vec($reads, 0, 1) = 1;
    vec($reads, fileno $listener, 1) = 1;
    vec($writes, 1, 1) = 1 if length $out;
    for my $c (values %open) {
        my $number = fileno $c->{handle};
        vec($reads, $number, 1) = 1 if $c->{credit} > 0 && !$c->{read_end} && length $out < $BACKLOG;
        vec($writes, $number, 1) = 1 if length $c->{out};
    }
    next if select(my $r = $reads, my $w = $writes, undef, undef) < 0;
    to_host() if vec($w, 1, 1);
    from_host() if vec($r, 0, 1);
    accept_one($listener) if vec($r, fileno $listener, 1);
    for my $number (keys %of) {
        to_program($of{$number}) if vec($w, $number, 1) && $of{$number} && length $of{$number}{out};
        from_program($of{$number}) if vec($r, $number, 1) && $of{$number};
    }
}
