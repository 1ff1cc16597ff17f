package city

// business is what teams do, with the percentage of transactions in which they do it.
var business = []struct {
	share int
	do    func(*City, *Transaction)
}{
	{16, (*City).payout},
	{10, (*City).claim},
	{10, (*City).stake},
	{10, (*City).inventory},
	{14, (*City).energy},
	{14, (*City).oracle},
	{4, (*City).govern},
	{10, (*City).agent},
	{12, (*City).chat},
}

func (c *City) payout(t *Transaction) {
	id := c.id("p")
	t.What, t.Amount = "payout", 100+c.rand.Int64N(1_000_000)
	for _, step := range []string{"generated", "approved", "sent"} {
		c.add(t, "STREAM_PAYOUT", "payout."+step, map[string]any{"payout_id": id, "amount": t.Amount, "currency": c.one("USDC", "EURC")})
	}
}

func (c *City) claim(t *Transaction) {
	id := c.id("c")
	t.What, t.Amount = "claim", 100+c.rand.Int64N(50_000)
	c.add(t, "STREAM_CLAIM", "claim.opened", map[string]any{"claim_id": id, "amount": t.Amount, "reason": c.one("bounty", "refund", "grant")})
	if c.rand.IntN(3) > 0 {
		c.add(t, "STREAM_CLAIM", "claim.approved", map[string]any{"claim_id": id, "by": "agent_treasury"})
		c.add(t, "STREAM_PAYOUT", "payout.generated", map[string]any{"payout_id": "p" + id, "amount": t.Amount, "claim_id": id})
	}
}

func (c *City) stake(t *Transaction) {
	t.What, t.Amount = "stake", 1000*(1+c.rand.Int64N(500))
	c.add(t, "STREAM_STAKING", "staking."+c.one("deposited", "deposited", "withdrawn"),
		map[string]any{"pool": c.one("harbour", "orchard", "north"), "amount": t.Amount, "validator": c.id("v")})
	c.add(t, "STREAM_STAKING", "staking.rewarded", map[string]any{"amount": t.Amount / 400})
}

func (c *City) inventory(t *Transaction) {
	t.What = "inventory"
	asset := c.one("warehouse", "solar_field", "vineyard", "tram_7")
	c.add(t, "STREAM_RWA", "rwa.inventory."+c.one("counted", "moved", "pledged"),
		map[string]any{"asset": asset, "lot": c.id("lot"), "units": c.rand.IntN(10_000)})
	if c.rand.IntN(2) == 0 {
		c.add(t, "STREAM_RWA", "rwa.inventory.valued", map[string]any{"asset": asset, "value": c.rand.Int64N(90_000_000), "source": "oracle"})
	}
}

func (c *City) energy(t *Transaction) {
	t.What = "energy"
	meter := c.id("m")
	for range 1 + c.rand.IntN(4) {
		c.add(t, "STREAM_ENERGY", "embassy.energy.updated",
			map[string]any{"embassy": c.one("tallinn", "nairobi", "osaka", "lima"), "meter": meter, "watts": c.rand.IntN(40_000), "battery": c.rand.Float64()})
	}
}

func (c *City) oracle(t *Transaction) {
	t.What = "oracle"
	for range 1 + c.rand.IntN(3) {
		c.add(t, "STREAM_ORACLE", "oracle.reading."+c.one("price", "weather", "tide"),
			map[string]any{"feed": c.one("eth-usd", "kwh-spot", "rain-mm", "sea-level"), "value": c.rand.NormFloat64() * 1000, "round": c.total})
	}
}

func (c *City) govern(t *Transaction) {
	t.What = "governance"
	id := c.id("g")
	c.add(t, "STREAM_GOVERNANCE", "governance.proposed", map[string]any{"proposal": id, "title": c.one("Plant the ring road", "Lower the fee", "Open the archive")})
	for range 1 + c.rand.IntN(3) {
		c.add(t, "STREAM_GOVERNANCE", "governance.voted", map[string]any{"proposal": id, "vote": c.one("yes", "no", "abstain"), "weight": c.rand.IntN(100)})
	}
	c.add(t, "STREAM_GOVERNANCE", "governance.decided", map[string]any{"proposal": id, "passed": c.rand.IntN(2) == 0})
}

func (c *City) agent(t *Transaction) {
	t.What = "agent"
	id := c.id("run")
	c.add(t, "STREAM_AGENT_RUN", "agent.run.started", map[string]any{"run": id, "agent": c.one("treasurer", "scout", "scribe"), "model": "m1"})
	c.add(t, "STREAM_AGENT_RUN", "agent.run."+c.one("finished", "finished", "failed"), map[string]any{"run": id, "tokens": c.rand.IntN(20_000)})
}

func (c *City) chat(t *Transaction) {
	t.What = "chat"
	c.add(t, "STREAM_CHAT", "chat.message",
		map[string]any{"room": c.one("plaza", "harbour", "küche", "市場"), "text": c.one("good morning", "who moved the lot?", "vote, please", "¿vamos?", "🚋 late again")})
}
