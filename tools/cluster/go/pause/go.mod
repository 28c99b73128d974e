module pulumi-trainer/tools/cluster/go/pause

go 1.26.0
