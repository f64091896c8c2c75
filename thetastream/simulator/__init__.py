"""The simulator: what a policy does under a load curve, and which resource of a cluster limits a join.

It runs the cost model and the policies, and no join. Its figures are as good as the constants of the cost
model; ``thetastream.simulator.limits`` says which of them were measured.
"""
