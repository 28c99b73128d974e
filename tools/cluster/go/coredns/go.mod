module pulumi-trainer/tools/cluster/go/coredns

go 1.26.0

require github.com/coredns/coredns v1.13.1
